// Lloyd-Max tables against the published digits and against their own defining equation.
// SPDX-License-Identifier: MIT
#include "generator/codebook.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <numbers>

using namespace kvjit;

TEST_CASE("Lloyd-Max agrees with the published tables to the digits they print") {
  const std::vector<std::vector<double>> published = {
      {0.7978846},
      {0.4527800, 1.5104176},
      {0.2450942, 0.7560053, 1.3439093, 2.1519457},
      {0.1283950, 0.3880483, 0.6567591, 0.9423405, 1.2562312, 1.6180464, 2.0690172, 2.7325896}};
  for (int bits = 1; bits <= 4; ++bits) {
    const std::vector<double> values = lloyd_max_normal(bits);
    REQUIRE(int(values.size()) == 1 << bits);
    const int half = 1 << (bits - 1);
    for (int i = 0; i < half; ++i) CHECK(std::abs(values[half + i] - published[bits - 1][i]) < 5.1e-8);
  }
}

TEST_CASE("every value is the mean of its cell, for every number of bits") {
  const auto density = [](long double x) {
    return std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi_v<long double>);
  };
  const auto tail = [](long double x) { return std::erfc(x / std::numbers::sqrt2_v<long double>) / 2; };
  for (int bits = 1; bits <= 8; ++bits) {
    CAPTURE(bits);
    const std::vector<double> values = lloyd_max_normal(bits);
    CHECK(std::is_sorted(values.begin(), values.end()));
    const int count = int(values.size());
    for (int i = count / 2; i < count; ++i) {
      CHECK(values[i] == -values[count - 1 - i]);
      const long double a = (static_cast<long double>(values[i - 1]) + values[i]) / 2;
      const bool is_last = i == count - 1;
      const long double b = is_last ? 0 : (static_cast<long double>(values[i]) + values[i + 1]) / 2;
      const long double mean = (density(a) - (is_last ? 0 : density(b))) / (tail(a) - (is_last ? 0 : tail(b)));
      CHECK(std::abs(double(mean - values[i])) < 1e-13);
    }
  }
}

TEST_CASE("midpoints, and codes on a bound go up") {
  const std::vector<double> bounds = midpoints({-3, -1, 1, 5});
  CHECK(bounds == std::vector<double>{-2, 0, 3});
  CHECK(code_of(-2.5, bounds) == 0);
  CHECK(code_of(-2, bounds) == 1);
  CHECK(code_of(0, bounds) == 2);
  CHECK(code_of(2.999, bounds) == 2);
  CHECK(code_of(3, bounds) == 3);
  CHECK(code_of(1e300, bounds) == 3);
}
