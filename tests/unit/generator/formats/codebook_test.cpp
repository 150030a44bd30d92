// generator/formats/codebook.cpp: Lloyd-Max tables against the published digits and against the equation that defines
// them.
// SPDX-License-Identifier: MIT
#include "generator/formats/codebook.hpp"

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

namespace {

// Integrates t^power times the density of a coordinate of a unit vector times sqrt(d) over [a, b], by Simpson's rule in
// the angle asin(t / sqrt d), where the integrand is smooth. The part beyond a + 12 is below 1e-30 of the integral.
long double sphere_integral(int d, int power, long double a, long double b) {
  const long double root = std::sqrt(static_cast<long double>(d));
  const auto integrand = [&](long double angle) {
    return std::pow(root * std::sin(angle), static_cast<long double>(power)) *
           std::pow(std::cos(angle), static_cast<long double>(d - 2));
  };
  const long double low = std::asin(a / root), high = std::asin(std::min(b, a + 12) / root),
                    step = (high - low) / 12000;
  long double sum = 0;
  for (int i = 0; i <= 12000; ++i) sum += (i == 0 || i == 12000 ? 1 : i % 2 ? 4 : 2) * integrand(low + i * step);
  const long double norm =
      std::exp(std::lgamma(d / 2.0L) - std::lgamma((d - 1) / 2.0L)) / std::sqrt(std::numbers::pi_v<long double>);
  return norm * sum * step / 3;
}

}  // namespace

// The tolerance is one unit of the last printed digit, because two of the figures are truncated.
TEST_CASE("lloyd_max_sphere agrees with the published codebooks and distortions") {
  const std::vector<std::vector<double>> d128 = {{.2444, .7533, 1.3366, 2.1315},
                                                 {.1279, .3864, .6536, .9371, 1.2478, 1.6043, 2.0459, 2.6888}};
  for (int bits = 3; bits <= 4; ++bits) {
    const std::vector<double> values = lloyd_max_sphere(bits, 128);
    const int half = 1 << (bits - 1);
    for (int i = 0; i < half; ++i) CHECK(std::abs(values[half + i] - d128[bits - 3][i]) < 1e-4);
  }
  const double distortion[4][4] = {{.3584, .1145, .0334, .00913},  // d = 64, bits 1..4
                                   {.3609, .1160, .0340, .00932},
                                   {.3621, .1167, .0343, .00941},
                                   {.3628, .1171, .0344, .00945}};
  for (int row = 0; row < 4; ++row)
    for (int bits = 1; bits <= 4; ++bits) {
      const int d = 64 << row, count = 1 << bits;
      CAPTURE(d);
      CAPTURE(bits);
      const std::vector<double> values = lloyd_max_sphere(bits, d);
      REQUIRE(int(values.size()) == count);
      long double explained = 0;  // E[Q^2] = 1 - E[(t - Q)^2] for centroids
      for (int i = count / 2; i < count; ++i) {
        const long double a = i == count / 2 ? 0 : (static_cast<long double>(values[i - 1]) + values[i]) / 2;
        const long double b = i == count - 1 ? std::sqrt(static_cast<long double>(d))
                                             : (static_cast<long double>(values[i]) + values[i + 1]) / 2;
        explained += 2 * values[i] * values[i] * sphere_integral(d, 0, a, b);
      }
      const double printed = distortion[row][bits - 1];
      CHECK(std::abs(double(1 - explained) - printed) < (bits == 4 ? 1e-5 : 1e-4));
    }
}

TEST_CASE("lloyd_max_sphere: every value is the mean of its cell; the limit is the normal one") {
  for (const int d : {3, 4, 16, 128, 1024})
    for (int bits = 1; bits <= 8; ++bits) {
      CAPTURE(d);
      CAPTURE(bits);
      const std::vector<double> values = lloyd_max_sphere(bits, d);
      const int count = int(values.size());
      CHECK(std::is_sorted(values.begin(), values.end()));
      CHECK(values.back() < std::sqrt(double(d)));
      for (int i = count / 2; i<count; i += bits> 5 ? 11 : 1) {
        CHECK(values[i] == -values[count - 1 - i]);
        const long double a = i == count / 2 ? 0 : (static_cast<long double>(values[i - 1]) + values[i]) / 2;
        const long double b = i == count - 1 ? std::sqrt(static_cast<long double>(d))
                                             : (static_cast<long double>(values[i]) + values[i + 1]) / 2;
        const long double mean = sphere_integral(d, 1, a, b) / sphere_integral(d, 0, a, b);
        CHECK(std::abs(double(mean - values[i])) < 1e-11);
      }
    }
  // d = 3 gives the uniform density: equal cells.
  const std::vector<double> uniform = lloyd_max_sphere(3, 3);
  for (int i = 0; i < 8; ++i) CHECK(std::abs(uniform[i] - std::sqrt(3.0) * (2 * i - 7) / 8) < 1e-14);
  for (int bits = 1; bits <= 8; ++bits) {
    const std::vector<double> normal = lloyd_max_normal(bits), near = lloyd_max_sphere(bits, 4096),
                              far = lloyd_max_sphere(bits, 1024);
    for (std::size_t i = 0; i < normal.size(); ++i) {
      CHECK(std::abs(near[i] - normal[i]) < 0.01);
      CHECK(std::abs(near[i] - normal[i]) <= std::abs(far[i] - normal[i]) + 1e-12);
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
