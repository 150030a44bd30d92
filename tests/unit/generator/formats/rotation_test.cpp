// Every file of specs/rotations against published signs and matrices, and each kind of map against its definition.
// SPDX-License-Identifier: MIT
#include "generator/formats/rotation.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numbers>
#include <numeric>

#include "generator/base/random.hpp"
#include "generator/catalogue/registry.hpp"
#include "generator/formats/codebook.hpp"
#include "tests/support/registry.hpp"
#include "tests/support/rng.hpp"

using namespace kvjit;

namespace {

using test::registry;

// Packs signs into bits: bit i is set if sign i is -1; the first word holds signs 0..31.
std::vector<std::uint32_t> words(const std::vector<std::int8_t>& signs) {
  std::vector<std::uint32_t> out(signs.size() / 32);
  for (std::size_t i = 0; i < signs.size(); ++i) out[i / 32] |= std::uint32_t(signs[i] < 0) << i % 32;
  return out;
}

using Words = std::vector<std::uint32_t>;

Rotation rotation(const std::string& name, int size) { return registry().rotation(name, size, {}).value(); }
Rotation wht(int size) { return rotation("wht_signed", size); }

bool is_one_sided(const Rotation& r) { return r.post == std::vector<std::int8_t>(std::size_t(r.size), 1); }

}  // namespace

TEST_CASE("wht_signed: prefixes below the 128 published signs, as many draws as channels above") {
  const Rotation full = wht(128), half = wht(64), wide = wht(256);
  CHECK(words(full.pre) == Words{0xE46A0359, 0x42F85949, 0xA4C63BBB, 0x49F250A9});
  CHECK(words(full.post) == Words{0x16ACEE90, 0x3F628FDC, 0xB7A5357A, 0xBEA56562});
  CHECK(std::equal(half.pre.begin(), half.pre.end(), full.pre.begin()));
  CHECK(std::equal(half.post.begin(), half.post.end(), full.post.begin()));
  CHECK(half.post.size() == 64);
  CHECK(wide.post == pcg64_signs(42, 256, 256));
}

TEST_CASE("signs of a head: each group has its own, which one transform of the head would have, too") {
  const Rotation blocks = rotation("wht_octave_blocks", 64), whole = rotation("wht_octave", 256);
  CHECK(blocks.has_head_signs());
  CHECK_FALSE(whole.has_head_signs());
  CHECK(blocks.pre == whole.pre);
  CHECK(is_one_sided(blocks));
  for (const int channel : {0, 63, 64, 130, 255}) {
    std::vector<double> x(256, 0.0);
    x[std::size_t(channel)] = 1;
    rotate_forward(blocks, x.data(), 256);
    CHECK(x[std::size_t(channel / 64 * 64)] == doctest::Approx(whole.pre[std::size_t(channel)] / 8.0));
    rotate_inverse(blocks, x.data(), 256);
    CHECK(x[std::size_t(channel)] == doctest::Approx(1));
  }
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

TEST_CASE("published sign tables of the other transforms") {
  const Rotation qjl = rotation("wht_qjl_1042", 128);
  CHECK(words(qjl.pre) == Words{0x693A565E, 0x25622D30, 0x0243E607, 0xFEC58BDA});
  CHECK(words(qjl.post) == Words{0x3D172324, 0x203007CB, 0x9540A34B, 0x856B1126});

  const Rotation tq3 = rotation("wht_tq3", 32);
  CHECK(tq3.pre == std::vector<std::int8_t>{1, -1, 1,  1, -1, -1, 1, -1, 1,  1, -1, 1, -1, 1,  -1, -1,
                                            1, -1, -1, 1, 1,  -1, 1, -1, -1, 1, 1,  1, -1, -1, 1,  -1});
  CHECK(is_one_sided(tq3));

  const Rotation golden = rotation("wht_golden", 32), turbo_tan = rotation("wht_turbo_tan", 128);
  CHECK(words(golden.pre) == Words{0x696B4B4A});
  CHECK(words(turbo_tan.pre) == Words{0x696B4B4A, 0xA5AD2D29, 0x94B4B4A5, 0x52D2D696});
  CHECK(turbo_tan.pre == golden_signs(128));
  CHECK(is_one_sided(golden));
  CHECK(is_one_sided(turbo_tan));

  const Words s1_256 = {0xC028BDDD, 0xFE5483E8, 0x00B54509, 0x9A94A018, 0x57DE2FF8, 0xDBBF19A3, 0x3AFE2DC7, 0xEBDA4034};
  const Words s2_256 = {0xE85431D9, 0x7682761D, 0xA7532CC2, 0x8A4336C9, 0xE40C84FD, 0x65C15681, 0x555AACC1, 0x4B75DB54};
  const Words s2_512 = {0x56746A09, 0x5B0E0565, 0x71316A21, 0x33754D84, 0x7363B6E8, 0x49119608, 0x9DFA1143, 0x74E09D96,
                        0xFD26399E, 0xD49B9E8D, 0x2BF53DB5, 0x3E65CA56, 0x7F01D99C, 0xAD67A2B6, 0x00803A7B, 0x3A6CBE98};
  Words s1_512 = s1_256;
  s1_512.insert(s1_512.end(), s2_256.begin(), s2_256.end());
  CHECK(words(rotation("wht_atlas", 128).pre) == words(wht(128).pre));
  CHECK(words(rotation("wht_atlas", 128).post) == words(wht(128).post));
  CHECK(words(rotation("wht_atlas", 256).pre) == s1_256);
  CHECK(words(rotation("wht_atlas", 256).post) == s2_256);
  CHECK(words(rotation("wht_atlas", 512).pre) == s1_512);
  CHECK(words(rotation("wht_atlas", 512).post) == s2_512);

  for (const int size : {16, 32, 64, 128, 256, 512}) {
    CHECK(rotation("wht_unsigned", size).pre == std::vector<std::int8_t>(std::size_t(size), 1));
    CHECK(is_one_sided(rotation("wht_unsigned", size)));
  }
}

TEST_CASE("AmesianX' byte masks: a prefix for each size; the residual's is the second half, and at 512 another") {
  const Words mask = words(rotation("wht_amesianx", 512).pre);
  // Published bytes: a7 3b 91 f4 ... 2c db, then d3 4e a8 17 ... 97 1e 85. The first byte of a word is its lowest.
  CHECK(mask[0] == 0xF4913BA7);
  CHECK(mask[7] == 0xDB2C854A);
  CHECK(mask[8] == 0x17A84ED3);
  CHECK(mask[15] == 0x851E97A3);
  for (const int size : {64, 128, 256}) {
    CHECK(words(rotation("wht_amesianx", size).pre) == Words(mask.begin(), mask.begin() + size / 32));
    CHECK(is_one_sided(rotation("wht_amesianx", size)));
  }
  CHECK(words(rotation("wht_amesianx_qjl", 256).pre) == Words(mask.begin() + 8, mask.end()));
  const Words residual = words(rotation("wht_amesianx_qjl", 512).pre);
  CHECK(residual.front() == 0x8D754E21);
  CHECK(residual.back() == 0x3DBC7B04);
}

TEST_CASE("a dense matrix is made when it is first read, once for all who name it") {
  const Registry fresh = Registry::load(embedded_files()).value();
  const Rotation one = fresh.rotation("dense_517c", 256, {}).value(), other = one;
  CHECK_FALSE(one.matrix.is_made());  // ... after all formats were loaded
  const Format stored = fresh.format_for("tbqp4_dense256_qsfirst_raw", 256, {}).value();
  CHECK_FALSE(stored.rotation.matrix.is_made());
  CHECK(one.matrix.numbers().size() == 256 * 256);
  CHECK(&other.matrix.numbers() == &one.matrix.numbers());
  CHECK(&stored.rotation.matrix.numbers() == &one.matrix.numbers());
  CHECK_FALSE(fresh.rotation("dense_517c", 128, {})->matrix.is_made());
  CHECK(fresh.rotation("dense_517c", 128, {})->matrix != one.matrix);
  CHECK(Matrix(std::vector<double>{1, 2}) == Matrix([] { return std::vector<double>{1, 2}; }));
  CHECK(Matrix().numbers().empty());
}

TEST_CASE("dense_517c: the published first row, and orthogonal to the last bits") {
  const Rotation r = rotation("dense_517c", 128);
  // Values as float32 arithmetic gives them; double precision differs by up to 2e-6.
  const double row[] = {0.164024785,   0.112021364,   0.109125912,  -0.0784816667, 0.104265332,   0.0266013965,
                        -0.0431765392, -0.0263366848, -0.158256099, 0.0577967055,  -0.0717994869, -0.122475460,
                        0.134854674,   0.0818873867,  0.0189324114, -0.0273899417};
  for (int j = 0; j < 16; ++j) CHECK(std::abs(r.matrix[j] - row[j]) < 5e-6);
  CHECK(std::abs(r.matrix[0] - 0.164024737) < 1e-9);  // in double precision
  CHECK(r.width == 128);
  for (const int size : {128, 256}) {
    const Rotation wide = rotation("dense_517c", size);
    CHECK(wide.is_orthogonal);
    double largest = 0;
    for (int i = 0; i < size; ++i)
      for (int j = 0; j <= i; ++j) {
        double sum = i == j ? -1 : 0;
        for (int k = 0; k < size; ++k) sum += wide.matrix[i * size + k] * wide.matrix[j * size + k];
        largest = std::max(largest, std::abs(sum));
      }
    CHECK(largest < 2e-15 * size);
  }
}

TEST_CASE("dense_517c: the codes of the published 4-bit block that it rotates") {
  const std::vector<float> input = test::golden_input(128);
  std::vector<double> x(input.begin(), input.end());
  const double norm = std::sqrt(std::inner_product(x.begin(), x.end(), x.begin(), 0.0));
  rotate_forward(rotation("dense_517c", 128), x.data(), 128);
  const std::vector<double> bounds = midpoints(lloyd_max_normal(4));
  std::string bytes;
  for (int i = 0; i < 128; i += 2) {
    const auto code = [&](int j) { return code_of(x[j] / norm * std::sqrt(128.0), bounds); };
    bytes += fmt::format("{:02x}", code(i) | code(i + 1) << 4);
  }
  CHECK(bytes ==
        "5494777772ecd9c31e95c283366973ab8a7b7814a7a793c6996c9db89f796957994ca46a9d4b46ebb8ac96cc49741455cc2b8a87994c62"
        "18a459"
        "c566b5b67d66");
}

TEST_CASE("gaussian_517c: independent N(0,1), column by column, and no rotation") {
  const Rotation r = rotation("gaussian_517c", 256);
  const std::vector<double> normals = splitmix_normals(0x517cc1b727220a95u ^ 0x1234567890abcdefu, 256 * 256);
  CHECK_FALSE(r.is_orthogonal);
  double square = 0;
  for (int i = 0; i < 256; ++i)
    for (int j = 0; j < 256; ++j) {
      REQUIRE(r.matrix[i * 256 + j] == normals[i + j * 256]);
      square += normals[i + j * 256] * normals[i + j * 256];
    }
  CHECK(square / (256 * 256) == doctest::Approx(1).epsilon(0.02));
}

TEST_CASE("blocks: the published first pair and quaternion, and what they do") {
  const Rotation planar = rotation("planar_torch", 128), iso = rotation("iso_torch", 128);
  CHECK(planar.width == 2);
  CHECK(std::abs(planar.matrix[0] - 0.7386546) < 1e-7);  // cosine
  CHECK(std::abs(planar.matrix[2] + 0.6740841) < 1e-7);  // sine
  CHECK(rotation("planar_torch", 64).matrix ==
        std::vector<double>(planar.matrix.numbers().begin(), planar.matrix.numbers().begin() + 128));
  std::vector<double> x(128, 0.0);
  x[0] = 1;
  rotate_forward(planar, x.data(), 128);
  CHECK(x[0] == planar.matrix[0]);
  CHECK(x[1] == planar.matrix[2]);

  // Left multiplication takes the unit 1 to q, and the unit i to q i.
  const double q[] = {.5765610, .4450170, .2695076, -.6300024};
  for (int k = 0; k < 4; ++k) CHECK(std::abs(iso.matrix[4 * k] - q[k]) < 1e-6);
  std::vector<double> i(128, 0.0);
  i[1] = 1;
  rotate_forward(iso, i.data(), 128);
  const double q_i[] = {-q[1], q[0], q[3], -q[2]};
  for (int k = 0; k < 4; ++k) CHECK(std::abs(i[k] - q_i[k]) < 1e-6);
}

TEST_CASE("rotor_torch: R x R~ with the rotor of each block; the last two channels stay") {
  const Rotation r = rotation("rotor_torch", 128);
  CHECK(r.width == 3);
  for (int block = 0; block < 42; ++block) {
    Torch torch(42 + block);
    const std::vector<double> b = torch.randn(3);
    const double angle = 2 * std::numbers::pi * torch.rand(1)[0], norm = std::hypot(b[0], b[1], b[2]);
    // R = cos(t/2) + sin(t/2) B turns the plane of B = b12 e12 + b13 e13 + b23 e23 by t and keeps its normal.
    const double normal[] = {b[2] / norm, -b[1] / norm, b[0] / norm};
    double x[128] = {}, trace = 0;
    for (int k = 0; k < 3; ++k) {
      x[3 * block + k] = normal[k];
      trace += r.matrix[(3 * block + k) * 3 + k];
    }
    rotate_forward(r, x, 128);
    for (int k = 0; k < 3; ++k) CHECK(std::abs(x[3 * block + k] - normal[k]) < 1e-14);
    CHECK(std::abs(trace - (1 + 2 * std::cos(angle))) < 1e-14);
    // e12 e1 = -e2, so R e1 R~ = cos t e1 - sin t e2 when B = e12: a vector v of the plane goes to cos t v - sin t n x
    // v.
    const double v[] = {normal[1], -normal[0], 0}, n_x_v[] = {normal[0] * normal[2], normal[1] * normal[2],
                                                              -normal[0] * normal[0] - normal[1] * normal[1]};
    double y[128] = {};
    for (int k = 0; k < 3; ++k) y[3 * block + k] = v[k];
    rotate_forward(r, y, 128);
    for (int k = 0; k < 3; ++k)
      CHECK(std::abs(y[3 * block + k] - (std::cos(angle) * v[k] - std::sin(angle) * n_x_v[k])) < 1e-14);
  }
  std::vector<double> x(128, 0.0);
  x[126] = 2, x[127] = 3;
  rotate_forward(r, x.data(), 128);
  CHECK(x[126] == 2);
  CHECK(x[127] == 3);
}

TEST_CASE("every rotation of specs/: inverse undoes forward, inner products stay, groups do not mix") {
  for (const auto& [name, spec] : registry().rotations())
    for (const int size : spec.sizes) {
      CAPTURE(name);
      CAPTURE(size);
      const Rotation r = rotation(name, size);
      test::Rng rng(5);
      std::vector<double> x(std::size_t(2 * size)), z(x.size());
      for (double& v : x) v = rng.normal();
      for (int i = 0; i < size; ++i) z[std::size_t(size + i)] = rng.normal();
      std::vector<double> y = x, w = z;
      rotate_forward(r, y.data(), 2 * size);
      rotate_forward(r, w.data(), 2 * size);
      CHECK(y != x);
      for (int i = 0; i < size; ++i) REQUIRE(w[std::size_t(i)] == 0);
      if (!r.is_orthogonal) {  // the inverse is only the transpose: <S x, z> = <x, S^T z>
        std::vector<double> back = z;
        rotate_inverse(r, back.data(), 2 * size);
        const double left = std::inner_product(y.begin(), y.end(), z.begin(), 0.0);
        CHECK(left == doctest::Approx(std::inner_product(x.begin(), x.end(), back.begin(), 0.0)).epsilon(1e-12));
        continue;
      }
      const double before = std::inner_product(x.begin(), x.end(), z.begin(), 0.0);
      CHECK(std::abs(std::inner_product(y.begin(), y.end(), w.begin(), 0.0) - before) < 1e-12);
      rotate_inverse(r, y.data(), 2 * size);
      for (std::size_t i = 0; i < x.size(); ++i) REQUIRE(std::abs(y[i] - x[i]) < 1e-13);
    }
}
