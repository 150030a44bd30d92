// generator/base/halves.cpp: the unit in which a table's entries are rounded to fp16, and the rounding error.
// SPDX-License-Identifier: MIT
#include "generator/base/halves.hpp"

#include <doctest/doctest.h>

#include <cmath>

#include "generator/base/minifloat.hpp"

namespace kvjit {
namespace {

TEST_CASE("numbers that halves hold in many units are the shortest halves") {
  const std::vector<double> values = {-1, -0.375, 0.375, 1};
  const HalfTable table = halves_of(values);
  CHECK(relative_rounding(values, table) == 0);
  CHECK(table.unit == 1);
  CHECK(float_from_f16(table.halves[2]) == 0.375f);
}

TEST_CASE("no unit of the candidates is better, with the weights of that choice") {
  const std::vector<double> values = {0.1284, 0.3881, 0.6568, 0.9424, 1.2562, 1.6180, 2.0690, 2.7326};
  const std::vector<double> mostly_small = {1, 1, 1, 1e-3, 1e-3, 1e-3, 1e-3, 1e-3};
  for (const auto& weights : {std::vector<double>{}, mostly_small}) {
    const HalfTable chosen = halves_of(values, weights);
    const double rest = relative_rounding(values, chosen, weights);
    CHECK(rest > 0);
    CHECK(rest < 6e-5);  // 2e-4 if the unit is the largest entry
    for (int i = 0; i < 2048; ++i) {
      HalfTable other{2.7326 / (1 + i / 2048.0), {}};
      for (const double v : values) other.halves.push_back(f16_from_float(float(v / other.unit)));
      CHECK(relative_rounding(values, other, weights) >= rest * (1 - 1e-9));
    }
  }
  CHECK(halves_of(values).unit != halves_of(values, mostly_small).unit);
}

}  // namespace
}  // namespace kvjit
