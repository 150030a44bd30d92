// generator/formats/rotation_file.cpp: each kind and generator of rotation, and what is refused.
// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>
#include <fmt/format.h>

#include "generator/base/random.hpp"
#include "generator/formats/rotation.hpp"

using namespace kvjit;

namespace {

std::string message(const std::string& text) { return parse_rotation(text, "x.toml").error().message; }

Rotation made(const std::string& text, int size) {
  return make_rotation(parse_rotation(text, "r/x.toml").value(), size).value();
}

}  // namespace

TEST_CASE("a wht file: every sign generator, and what is refused") {
  const std::string head = "title = 't'\nkind = 'wht'\nsizes = [4]\n[signs]\n";
  const RotationSpec list = parse_rotation(head + "generator = 'list'\npre = [1, -1, -1, 1]", "r/x.toml").value();
  const Rotation first = make_rotation(list, 4).value();
  CHECK(first.name == "x");
  CHECK(first.pre == std::vector<std::int8_t>{1, -1, -1, 1});
  CHECK(first.post == std::vector<std::int8_t>{1, 1, 1, 1});
  CHECK(make_rotation(parse_rotation(head + "generator = 'golden'", "x.toml").value(), 4)->pre == golden_signs(4));

  const Rotation drawn = made(head + "generator = 'mt19937'\nseed = 7", 4);
  CHECK(drawn.pre == mt19937_signs(7, 0, 4));
  CHECK(drawn.post == mt19937_signs(7, 4, 4));
  CHECK(made(head + "generator = 'none'", 4).pre == std::vector<std::int8_t>{1, 1, 1, 1});
  const Rotation masked = made(head + "generator = 'mask'\npre = ['0a', 'ff']\npost = ['0001 80']", 4);
  CHECK(masked.pre == std::vector<std::int8_t>{1, -1, 1, -1});
  CHECK(masked.post == std::vector<std::int8_t>{-1, 1, 1, 1});

  CHECK(message(head + "generator = 'list'\npre = [1, 0, 1, 1]") ==
        "pre needs +1 or -1 for each of 4 channels, the largest size");
  CHECK(message(head + "generator = 'list'\npre = [1, 1]") ==
        "pre needs +1 or -1 for each of 4 channels, the largest size");
  CHECK(message(head + "seed = 1\ngenerator = 'mt'") == "generator 'mt' is not known");
  CHECK(message(head + "generator = 'mt'") == "generator 'mt' is not known");
  CHECK(message(head + "generator = 'pcg64'\nseed = 1") == "[signs] needs the key 'draws'");
  CHECK(message(head + "generator = 'golden'\nseed = 1") == "unknown key 'seed' in [signs]");
  CHECK(message("title = 't'\nkind = 'wht'\nsizes = [12]\n[signs]\n") == "a wht spans a power of two channels, not 12");
  CHECK(message(head + "generator = 'mask'\npre = ['a']") ==
        "pre is a list of hexadecimal words of 2, 4 or 8 digits, not 'a'");
  CHECK(message(head + "generator = 'mask'\npre = ['fg']") ==
        "pre is a list of hexadecimal words of 2, 4 or 8 digits, not 'fg'");
  CHECK(message("title = 't'\nkind = 'wht'\nsizes = [16]\n[signs]\ngenerator = 'mask'\npre = ['ff']") ==
        "pre needs a bit for each of 16 channels, the largest size");
  CHECK(message(head + "generator = 'mt19937'\nseed = 0x100000000") == "seed must be an integer, 0..0xffffffff");
  CHECK(message(head + "generator = 'mt19937'\nseed = -1") == "seed must be an integer, 0..0xffffffff");
  CHECK(message("title = 't'\nkind = 'wht'\nsizes = [4]") == "a rotation needs the key 'signs'");
  CHECK(message("title = 't'\nkind = 'fft'\nsizes = [4]") == "kind 'fft' is not known");
  const Error refused = make_rotation(list, 8).error();
  CHECK(refused.code == Code::unsupported);
  CHECK(refused.notes == std::vector<std::string>{"possible sizes: 4"});
}

TEST_CASE("several [[signs]]: each serves its own sizes") {
  const std::string head = "title = 't'\nkind = 'wht'\n";
  const std::string first = "[[signs]]\nsizes = [4]\ngenerator = 'golden'\n";
  const std::string second = "[[signs]]\nsizes = [8, 16]\ngenerator = 'mt19937'\nseed = 1\n";
  const RotationSpec spec = parse_rotation(head + first + second, "x.toml").value();
  CHECK(spec.sizes == std::vector<int>{4, 8, 16});
  CHECK(make_rotation(spec, 4)->pre == golden_signs(4));
  CHECK(make_rotation(spec, 16)->post == mt19937_signs(1, 16, 16));
  CHECK(message(head + "sizes = [4]\n" + first) == "sizes stand in each [[signs]]");
  CHECK(message(head + first + first) == "another [[signs]] spans 4 channels");
  CHECK(message(head + "[[signs]]\ngenerator = 'golden'\n") == "[[signs]] needs the key 'sizes'");
}

TEST_CASE("a dense file: generated or listed, and what is refused") {
  const std::string head = "title = 't'\nkind = 'dense'\nsizes = [32]\n[matrix]\n";
  CHECK(made(head + "generator = 'householder'\nseed = 5", 32).matrix == householder_matrix(5, 32));
  const Rotation gaussian = made(head + "generator = 'gaussian'\nseed = 5", 32);
  CHECK(gaussian.matrix == gaussian_matrix(5, 32));
  CHECK_FALSE(gaussian.is_orthogonal);

  const auto listed = [&](const std::vector<double>& matrix) {
    std::string text = head + "generator = 'list'\nvalues = [";
    for (double value : matrix) text += fmt::format("{}, ", value);
    return text + "]";
  };
  std::vector<double> matrix = householder_matrix(5, 32);
  CHECK(made(listed(matrix), 32).matrix == matrix);
  CHECK(made(listed(matrix), 32).is_orthogonal);
  matrix[40] += 0.01;
  CHECK(message(listed(matrix)) == "the rows of a listed matrix must be orthogonal and of length 1");
  matrix.pop_back();
  CHECK(message(listed(matrix)) == "values needs 32 x 32 numbers, row by row, not 1023");
  CHECK(message("title = 't'\nkind = 'dense'\nsizes = [48]\n[matrix]\n") ==
        "a dense rotation spans a multiple of 32 channels, not 48");
  CHECK(message(head + "generator = 'householder'") == "[matrix] needs the key 'seed'");
  CHECK(message("title = 't'\nkind = 'dense'\nsizes = [32, 64]\n[matrix]\ngenerator = 'list'\nvalues = []") ==
        "a listed matrix has one size");
}

TEST_CASE("a file of blocks: drawn or listed, and what is refused") {
  const std::string head = "title = 't'\nkind = 'blocks'\nsizes = [4]\n[blocks]\n";
  const Rotation givens = made(head + "map = 'givens'\ngenerator = 'list'\nangles = [0, 1.5707963267948966]", 4);
  double x[] = {1, 2, 3, 4};
  rotate_forward(givens, x, 4);
  const double turned[] = {1, 2, -4, 3};
  for (int i = 0; i < 4; ++i) CHECK(x[i] == doctest::Approx(turned[i]));

  // i (w + x i + y j + z k) = -x + w i - z j + y k. The length of the quaternion does not matter.
  const Rotation left = made(head + "map = 'quaternion'\ngenerator = 'list'\nquaternions = [0, 2, 0, 0]", 4);
  double v[] = {1, 2, 3, 4};
  rotate_forward(left, v, 4);
  const double product[] = {-2, 1, -4, 3};
  for (int i = 0; i < 4; ++i) CHECK(v[i] == doctest::Approx(product[i]));

  // A quarter turn about z. The fourth channel fills no block.
  const Rotation rotor = made(head + "map = 'rotor'\ngenerator = 'list'\nquaternions = [1, 0, 0, 1]", 4);
  double u[] = {1, 2, 3, 4};
  rotate_forward(rotor, u, 4);
  const double quarter[] = {-2, 1, 3, 4};
  for (int i = 0; i < 4; ++i) CHECK(u[i] == doctest::Approx(quarter[i]));

  CHECK(message(head + "map = 'givens'\ngenerator = 'list'\nangles = [0]") ==
        "angles needs a number for each of 2 pairs");
  CHECK(message(head + "map = 'rotor'\ngenerator = 'list'\nquaternions = [1, 0, 0]") ==
        "quaternions needs w, x, y, z for each of 1 blocks");
  CHECK(message(head + "map = 'rotor'\ngenerator = 'list'\nquaternions = [0, 0, 0, 0]") ==
        "a quaternion of length 0 rotates nothing");
  CHECK(message(head + "map = 'givens'\ngenerator = 'torch'") == "[blocks] needs the key 'seed'");
  CHECK(message(head + "map = 'shear'\ngenerator = 'torch'\nseed = 1") == "map 'shear' is not known");
  CHECK(message("title = 't'\nkind = 'blocks'\nsizes = [48]\n[blocks]\n") ==
        "blocks span a divisor or a multiple of 32 channels, not 48");
}
