// Tables of numbers as fp16, and their rounding error. Kernels multiply the entries of codebooks as fp16 on the tensor
// cores. A table has the entries divided by a unit, and another factor of the product is multiplied by it. So the unit
// is free, and the planners take the one with the smallest rounding error.
// SPDX-License-Identifier: MIT
#pragma once
#include <cstdint>
#include <vector>

namespace kvjit {

struct HalfTable {
  double unit = 1;                    // what the fp16 numbers are multiples of
  std::vector<std::uint16_t> halves;  // the bits of fp16 numbers: halves[i] stands for values[i] / unit
};

// The table in the best of 2048 units: the one with the smallest sum of squared roundings, each as often as its weight
// says (no weights: all alike). The largest fp16 number lies in [1, 2).
HalfTable halves_of(const std::vector<double>& values, const std::vector<double>& weights = {});

// The root mean square of the table's errors, relative to that of the values. Both are weighted by `weights`.
double relative_rounding(const std::vector<double>& values, const HalfTable& table,
                         const std::vector<double>& weights = {});

}  // namespace kvjit
