// Tables of numbers as halves, and what that costs.
// SPDX-License-Identifier: MIT
#pragma once
#include <cstdint>
#include <vector>

namespace kvjit {

// halves[i] stands for values[i] / unit.
struct HalfTable {
  double unit = 1;
  std::vector<std::uint16_t> halves;
};

// A table's unit is free, as it joins another factor: the one of 2048 whose roundings are smallest in sum of squares,
// each as often as its weight says (none: all alike). The largest half lies in [1, 2).
HalfTable halves_of(const std::vector<double>& values, const std::vector<double>& weights = {});

// Root mean square of what halves leave of numbers, relative to theirs.
double relative_rounding(const std::vector<double>& values, const HalfTable& table,
                         const std::vector<double>& weights = {});

}  // namespace kvjit
