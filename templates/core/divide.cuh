// Quotient and rest of numbers that are known only when a kernel runs, by numbers that are known when it is compiled. Shifts, or a product:
// a compiler that is told to be quick (runtime/nvrtc_compiler) divides by constants as if they were anything.
// SPDX-License-Identifier: MIT
#pragma once
#include "core/simt.cuh"

namespace kv {

constexpr int bits_below(int v) { return v > 1 ? 1 + bits_below(v / 2) : 0; }

// Of 0 <= i with i * kBy < 2^32: the product with 1 / kBy, rounded up to 32 bits behind the point, is less than 1 / kBy too large.
template <int kBy>
KV_DEVICE int quotient(int i) {
  if constexpr ((kBy & (kBy - 1)) == 0)
    return i >> bits_below(kBy);
  else
    return int(multiply_high(u32(i), 0xffffffffu / kBy + 1));
}
template <int kBy>
KV_DEVICE int rest(int i) {
  if constexpr ((kBy & (kBy - 1)) == 0)
    return i & (kBy - 1);
  else
    return i - quotient<kBy>(i) * kBy;
}

}  // namespace kv
