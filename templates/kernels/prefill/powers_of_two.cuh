// The power of two by which a row of K, V or the queries is divided before it is rounded to fp16, where its numbers are
// beyond the range of fp16.
// SPDX-License-Identifier: MIT
#pragma once
#include "device/simt.cuh"

namespace kv {

constexpr int kLeastExponent = -12, kMostExponent = 14;  // of the largest number of a row that is unpacked as it is
constexpr int kFittedExponent = 8;                       // of one that is unpacked relative to a power of two
constexpr int kMostShift = 110;                          // of powers of two, so that float32 holds their products
constexpr int kExponentBias = 127;                       // of float32; exponents are stored with it, in a byte

KV_DEVICE float power_of_two(int exponent) { return float_of(u32(exponent + kExponentBias) << 23); }
// The exponent of the largest of a row's numbers, if it needs one that is not zero. bound: not less than that number.
// needs_one: it does, whatever its size.
KV_DEVICE int exponent_of_bound(float bound, bool needs_one = false) {
  const int exponent = int(bits_of(bound) >> 23) - kExponentBias;
  if (bound == 0.f || (!needs_one && exponent >= kLeastExponent && exponent < kMostExponent)) return 0;
  const int shift = exponent - kFittedExponent;
  return shift < -kMostShift ? -kMostShift : shift > kMostShift ? kMostShift : shift;
}

}  // namespace kv
