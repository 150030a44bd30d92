// The power of two by which a row of K, V or the queries is divided before it is rounded to fp16, where its numbers are
// beyond the range of fp16.
// SPDX-License-Identifier: MIT
#pragma once
#include "args/half_range.cuh"
#include "device/simt.cuh"

namespace kv {

// A row that needs a power of two is brought this far into that range, and no further: beside rows that need none its
// probabilities would become subnormal halves.
constexpr int kMargin = 4;
constexpr int kMostShift = 110;     // of powers of two, so that float32 holds their products
constexpr int kExponentBias = 127;  // of float32; exponents are stored with it, in a byte

KV_DEVICE float power_of_two(int exponent) { return float_of(u32(exponent + kExponentBias) << 23); }
KV_DEVICE int exponent_of(float x) { return int(bits_of(x) >> 23) - kExponentBias; }
// The exponent by which a row is divided, if it needs one that is not zero. bound: not less than its largest number.
// scale: its largest scale, if that is rounded to a half, which loses bits of subnormal ones.
KV_DEVICE int exponent_of_row(float bound, float scale = 1.f) {
  if (bound == 0.f) return 0;
  const int exponent = exponent_of(bound), of_scale = exponent_of(scale);
  int shift = exponent < kLeastExponent   ? exponent - (kLeastExponent + kMargin)
              : exponent >= kMostExponent ? exponent - (kMostExponent - kMargin)
                                          : 0;
  if (of_scale < kLeastNormalExponent) {
    const int lift = of_scale - (kLeastNormalExponent + kMargin);
    shift = lift < shift ? lift : shift;
  }
  return shift < -kMostShift ? -kMostShift : shift > kMostShift ? kMostShift : shift;
}

}  // namespace kv
