// Powers of two of the lane's tokens, rows g and g + 8 of a subtile: what wide_scales.cuh and wide_keys.cuh have in
// common. Numbers of a row are multiplied by down(), after which its largest one is at least 2^kLift and below twice
// that. Sums of products are multiplied by up(), in fp32.
// SPDX-License-Identifier: MIT
#pragma once
#include "kernels/decode/values.cuh"

namespace kv {

template <u32 kLift>
struct PowersOfRows {
  u32 exponent[2];  // of the largest number of each row, with the bias of float32

  // largest: the magnitude of the lane's largest number of row i, as the bits of a float, which order as magnitudes do.
  // The four lanes of a row find one power.
  KV_DEVICE void set(int i, u32 largest) {
    KV_UNROLL
    for (int mask = 1; mask < 4; mask <<= 1) largest = larger_bits(largest, shfl_xor(largest, mask));
    exponent[i] = larger_bits(largest >> 23, kLift + 1);
  }
  KV_DEVICE float down(int i) const { return float_of((254 + kLift - exponent[i]) << 23); }
  KV_DEVICE float up(int i) const { return float_of((exponent[i] - kLift) << 23); }
  template <int kWords>
  KV_DEVICE void divide(int, u32 (&)[kWords]) const {}
};

}  // namespace kv
