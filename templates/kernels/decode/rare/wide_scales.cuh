// Scores of keys whose scales have more exponents than fp16 and multiply values (E8M0, bf16 and f32 scales of a part of
// a block): the scales of a token's lane reads are divided by the power of two of the largest one, and the sums of
// products are multiplied by it, in fp32. A scale far below the largest of its token loses bits as a small value would.
// SPDX-License-Identifier: MIT
#pragma once
#include "kernels/decode/scores.cuh"

namespace kv {

template <class S>
concept HasWideScales = S::kHasWideScales;

template <class Plan, HasWideScales S>
struct TokenPowers<Plan, S> {
  u32 exponent[2];  // of the largest scale of rows g and g + 8

  KV_DEVICE void find(SharedAddress stage, const u32 (&misalignment)[2], int row, int group) {
    KV_UNROLL
    for (int i = 0; i < 2; ++i) {
      const SharedAddress scales =
          scales_of<typename Plan::K, S>(stage, misalignment[i], row + 8 * i, group, lane() & 3);
      u32 largest = 0;  // as bits, which order as magnitudes do
      KV_UNROLL
      for (int read = 0; read < S::kReads; ++read)
        largest = larger_of(largest, bits_of(absolute(S::scale(scales, scale_index<S>(read, lane() & 3)))));
      KV_UNROLL
      for (int mask = 1; mask < 4; mask <<= 1) largest = larger_of(largest, shfl_xor(largest, mask));
      exponent[i] = larger_of(largest >> 23, kLift + 1);
    }
  }
  // Multiplied by it, the largest scale is at least 2^kLift and below twice that: its values stay below 65504.
  KV_DEVICE float down(int i) const { return float_of((254 + kLift - exponent[i]) << 23); }
  KV_DEVICE float up(int i) const { return float_of((exponent[i] - kLift) << 23); }
  template <int kWords>
  KV_DEVICE void divide(int, u32 (&)[kWords]) const {}

 private:
  static constexpr u32 kLift = 4;
  KV_DEVICE static u32 larger_of(u32 a, u32 b) { return a > b ? a : b; }
};

}  // namespace kv
