// Rows of K in bf16 and f32 on archs without products of bfloats (sm_75): the elements of a token's group are divided
// by a power of two before they become fp16, and the sums of products are multiplied by it, in fp32. An element counts
// to 2^-39 of the largest one of its row.
// SPDX-License-Identifier: MIT
#pragma once
#include "kernels/decode/scores.cuh"

namespace kv {

template <class S>
concept DividesElements = S::kDividesElements;

template <class Plan, DividesElements S>
struct TokenPowers<Plan, S> {
  using K = typename Plan::K;
  u32 exponent[2];  // of the largest element of rows g and g + 8, as a float has it

  KV_DEVICE void find(SharedAddress stage, const u32 (&misalignment)[2], int row, int group) {
    KV_UNROLL
    for (int i = 0; i < 2; ++i) {
      u32 largest = 0;  // as bits, which order as magnitudes do
      KV_NO_UNROLL
      for (int read = 0; read < S::kReads; ++read) {
        u32 w[S::kReadWords];
        load_codes<S>(stage + (row / 8 + i) * 8 * K::kPitch, row % 8 * K::kPitch + misalignment[i], group, read,
                      lane() & 3, w);
        KV_UNROLL
        for (int j = 0; j < S::kReadWords; ++j) {
          largest = larger_of(largest, w[j] & 0x7fffffffu);
          if constexpr (!kIsF32) largest = larger_of(largest, w[j] << 16 & 0x7fffffffu);
        }
      }
      KV_UNROLL
      for (int mask = 1; mask < 4; mask <<= 1) largest = larger_of(largest, shfl_xor(largest, mask));
      exponent[i] = larger_of(largest >> 23, kLift + 1);
    }
  }
  // Multiplied by it, the largest element is at least 2^kLift and below 65504.
  KV_DEVICE float down(int i) const { return float_of((254 + kLift - exponent[i]) << 23); }
  KV_DEVICE float up(int i) const { return float_of((exponent[i] - kLift) << 23); }
  KV_DEVICE void divide(int i, u32 (&w)[S::kReadWords]) const {
    KV_UNROLL
    for (u32& word : w) {
      if constexpr (kIsF32)
        word = bits_of(float_of(word) * down(i));
      else  // exact, so the upper halves of the products are the bfloats
        word = permute(bits_of(float_of(word << 16) * down(i)), bits_of(float_of(word & 0xffff0000u) * down(i)),
                       0x7632);
    }
  }

 private:
  static constexpr bool kIsF32 = S::kReadWords == S::kReadCodes;
  static constexpr u32 kLift = 14;
  KV_DEVICE static u32 larger_of(u32 a, u32 b) { return a > b ? a : b; }
};

}  // namespace kv
