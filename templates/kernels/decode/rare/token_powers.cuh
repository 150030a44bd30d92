// Powers of two of the lane's tokens, rows g and g + 8 of a subtile: what wide_scales.cuh and wide_keys.cuh have in
// common. Numbers of a row are multiplied by down(), after which its largest one is at least 2^kLift and below twice
// that. Sums of products are multiplied by up(), in fp32.
// SPDX-License-Identifier: MIT
#pragma once
#include "kernels/decode/values.cuh"

namespace kv {

template <u32 kLift>
struct PowersOfRows {
  u32 exponent[2];  // bits of the power of two of each row's largest number, as a float

  // largest: the magnitudes of the lane's largest numbers of both rows, as the bits of floats, which order as
  // magnitudes do. The four lanes of a row find one power. The exponents of both rows are one word.
  KV_DEVICE void set(const u32 (&largest)[2]) {
    u32 both = larger_u16x2(largest[0] >> 23 | largest[1] >> 23 << 16, (kLift + 1) * 0x10001u);
    KV_UNROLL
    for (int mask = 1; mask < 4; mask <<= 1) both = larger_u16x2(both, shfl_xor(both, mask));
    exponent[0] = both << 23, exponent[1] = both >> 16 << 23;
  }
  KV_DEVICE float down(int i) const { return float_of(((254 + kLift) << 23) - exponent[i]); }
  KV_DEVICE float up(int i) const { return float_of(exponent[i] - (kLift << 23)); }
  template <int kWords>
  KV_DEVICE void divide(int, u32 (&)[kWords]) const {}
};

}  // namespace kv
