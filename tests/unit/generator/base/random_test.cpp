// generator/base/random.cpp: random generators, compared with the output of the libraries that they reproduce.
// SPDX-License-Identifier: MIT
#include "generator/base/random.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

using namespace kvjit;

namespace {

// Packs signs into bits: bit i is set if sign i is -1; the first word holds signs 0..31.
std::vector<std::uint32_t> words(const std::vector<std::int8_t>& signs) {
  std::vector<std::uint32_t> out(signs.size() / 32);
  for (std::size_t i = 0; i < signs.size(); ++i) out[i / 32] |= std::uint32_t(signs[i] < 0) << i % 32;
  return out;
}

using Words = std::vector<std::uint32_t>;

}  // namespace

TEST_CASE("pcg64: the published sign tables") {
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

TEST_CASE("mt19937: numpy's legacy generator, low bits") {
  CHECK(words(mt19937_signs(42, 0, 64)) == Words{0xC028BDDD, 0xFE5483E8});
  CHECK(words(mt19937_signs(42, 256, 32)) == Words{0xE85431D9});
}

TEST_CASE("splitmix_normals: the first four of the published rotation") {
  const std::vector<double> normals = splitmix_normals(0x517cc1b727220a95u, 5);
  const double want[] = {1.760252833, -0.1241837740, -0.5889219642, -0.6487821937};
  REQUIRE(normals.size() == 5);
  for (std::size_t i = 0; i < 4; ++i) CHECK(std::abs(normals[i] - want[i]) < 5.1e-10);
}

// torch prints after manual_seed(42): rand(1) 0.8823, randn(3) 0.3367 0.1288 0.2345; after manual_seed(0): rand(3)
// 0.4963 0.7682 0.0885, randn(3) 1.5410 -0.2934 -2.1788.
TEST_CASE("torch: rand and randn as printed in its documentation and forums") {
  const auto check = [](const std::vector<double>& values, const std::vector<double>& want) {
    REQUIRE(values.size() == want.size());
    for (std::size_t i = 0; i < want.size(); ++i) CHECK(std::abs(values[i] - want[i]) < 5.1e-5);
  };
  check(Torch(42).rand(1), {0.8823});
  check(Torch(42).randn(3), {0.3367, 0.1288, 0.2345});
  check(Torch(0).rand(3), {0.4963, 0.7682, 0.0885});
  check(Torch(0).randn(3), {1.5410, -0.2934, -2.1788});
}

TEST_CASE("torch: a ragged end of randn is drawn anew from the numbers that follow") {
  Torch whole(42), ragged(42), uniform(42);
  const std::vector<double> a = whole.randn(32), b = ragged.randn(18), u = uniform.rand(34);
  CHECK(b[0] == a[0]);
  CHECK(b[1] == a[1]);
  // The last 16 of 18 values come from draws 18..33: eight radii, then eight angles.
  const double radius = std::sqrt(-2 * std::log(1 - u[18])), angle = 2 * 3.14159265358979324 * u[26];
  CHECK(b[2] == doctest::Approx(radius * std::cos(angle)).epsilon(1e-14));
  CHECK(b[10] == doctest::Approx(radius * std::sin(angle)).epsilon(1e-14));
}
