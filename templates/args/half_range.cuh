// The rows that prefill unpacks as they are. The planner turns these bounds into bounds of scales, and kernels bring
// other rows into them (kernels/prefill/powers_of_two.cuh).
// SPDX-License-Identifier: MIT
#pragma once

namespace kv {

constexpr int kLeastExponent = -12, kMostExponent = 14;  // of the largest number of such a row
constexpr int kLeastNormalExponent = -14;                // of halves

}  // namespace kv
