// Sign generators against published words, and the transform against its definition.
// SPDX-License-Identifier: MIT
#include "generator/rotation.hpp"

#include <doctest/doctest.h>

#include <bit>
#include <cmath>

#include "generator/registry.hpp"
#include "tests/support/rng.hpp"

using namespace kvjit;

namespace {

// Bit i set: sign i is -1; the first word holds signs 0..31.
std::vector<std::uint32_t> words(const std::vector<std::int8_t>& signs) {
  std::vector<std::uint32_t> out(signs.size() / 32);
  for (std::size_t i = 0; i < signs.size(); ++i) out[i / 32] |= std::uint32_t(signs[i] < 0) << i % 32;
  return out;
}

using Words = std::vector<std::uint32_t>;

Rotation wht(int size) {
  static const Registry registry = Registry::load(embedded_files()).value();
  return registry.rotation("wht_signed", size, {}).value();
}

}  // namespace

TEST_CASE("the generator yields the published sign tables") {
  CHECK(words(pcg64_signs(42, 0, 128)) == Words{0xE46A0359, 0x42F85949, 0xA4C63BBB, 0x49F250A9});
  CHECK(words(pcg64_signs(42, 128, 128)) == Words{0x16ACEE90, 0x3F628FDC, 0xB7A5357A, 0xBEA56562});
  CHECK(words(pcg64_signs(1042, 0, 128)) == Words{0x693A565E, 0x25622D30, 0x0243E607, 0xFEC58BDA});
  CHECK(words(pcg64_signs(1042, 128, 128)) == Words{0x3D172324, 0x203007CB, 0x9540A34B, 0x856B1126});
  for (const int skip : {1, 2, 31}) {
    const std::vector<std::int8_t> all = pcg64_signs(42, 0, 64), tail = pcg64_signs(42, skip, 32);
    CHECK(std::equal(tail.begin(), tail.end(), all.begin() + skip));
  }
}

TEST_CASE("golden signs follow the multiples of the golden ratio") {
  const std::vector<std::int8_t> signs = golden_signs(64);
  for (int i = 0; i < 64; ++i) {
    const double turns = i * 0.6180339887;  // 0x9E3779B9 / 2^32
    CHECK(signs[i] == (turns - std::floor(turns) >= 0.5 ? -1 : 1));
  }
}

TEST_CASE("wht_signed: prefixes below the 128 published signs, as many draws as channels above") {
  const Rotation full = wht(128), half = wht(64), wide = wht(256);
  CHECK(words(full.pre) == Words{0xE46A0359, 0x42F85949, 0xA4C63BBB, 0x49F250A9});
  CHECK(words(full.post) == Words{0x16ACEE90, 0x3F628FDC, 0xB7A5357A, 0xBEA56562});
  CHECK(std::equal(half.pre.begin(), half.pre.end(), full.pre.begin()));
  CHECK(std::equal(half.post.begin(), half.post.end(), full.post.begin()));
  CHECK(half.post.size() == 64);
  CHECK(wide.post == pcg64_signs(42, 256, 256));
}

TEST_CASE("forward is S2 H S1 / sqrt(n) entry by entry; inverse undoes it; groups do not mix") {
  for (const int size : {32, 64, 128, 256, 512}) {
    const Rotation r = wht(size);
    for (const int column : {0, 1, size / 2 + 3, size - 1}) {
      std::vector<double> x(2 * size, 0.0);
      x[size + column] = 1;
      rotate_forward(r, x.data(), 2 * size);
      for (int row = 0; row < size; ++row) {
        const int hadamard = std::popcount(unsigned(row & column)) % 2 ? -1 : 1;
        REQUIRE(x[row] == 0);
        REQUIRE(x[size + row] ==
                doctest::Approx(r.post[row] * hadamard * r.pre[column] / std::sqrt(double(size))).epsilon(1e-15));
      }
    }
    test::Rng rng(3);
    std::vector<double> x, y;
    for (int i = 0; i < 2 * size; ++i) x.push_back(rng.normal());
    y = x;
    rotate_forward(r, y.data(), 2 * size);
    CHECK(y != x);
    rotate_inverse(r, y.data(), 2 * size);
    for (int i = 0; i < 2 * size; ++i) REQUIRE(std::abs(y[i] - x[i]) < 1e-14);
  }
}

TEST_CASE("identity leaves everything alone") {
  std::vector<double> x = {1, 2, 3};
  rotate_forward(Rotation{}, x.data(), 3);
  CHECK(x == std::vector<double>{1, 2, 3});
}

TEST_CASE("files: other generators, and what is refused") {
  const std::string head = "title = 't'\nkind = 'wht'\nsizes = [4]\n[signs]\n";
  const RotationSpec list = parse_rotation(head + "generator = 'list'\npre = [1, -1, -1, 1]", "r/x.toml").value();
  const Rotation made = make_rotation(list, 4).value();
  CHECK(made.name == "x");
  CHECK(made.pre == std::vector<std::int8_t>{1, -1, -1, 1});
  CHECK(made.post == std::vector<std::int8_t>{1, 1, 1, 1});
  CHECK(make_rotation(parse_rotation(head + "generator = 'golden'", "x.toml").value(), 4)->pre == golden_signs(4));

  const auto message = [&](const std::string& text) { return parse_rotation(text, "x.toml").error().message; };
  CHECK(message(head + "generator = 'list'\npre = [1, 0, 1, 1]") ==
        "pre needs +1 or -1 for each of 4 channels, the largest size");
  CHECK(message(head + "generator = 'list'\npre = [1, 1]") ==
        "pre needs +1 or -1 for each of 4 channels, the largest size");
  CHECK(message(head + "generator = 'mt'") == "generator 'mt' is not known");
  CHECK(message(head + "generator = 'pcg64'\nseed = 1") == "[signs] needs the key 'draws'");
  CHECK(message(head + "generator = 'golden'\nseed = 1") == "unknown key 'seed' in [signs]");
  CHECK(message("title = 't'\nkind = 'wht'\nsizes = [12]\n[signs]\n") == "a wht spans a power of two channels, not 12");
  const Error refused = make_rotation(list, 8).error();
  CHECK(refused.code == Code::unsupported);
  CHECK(refused.notes == std::vector<std::string>{"possible sizes: 4"});
}
