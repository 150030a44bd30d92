// Rows of K in bf16 and f32 on archs without products of bfloats (sm_75): the elements of a token's group are divided
// by the power of two of the largest one before they become fp16, and the sums of products are multiplied by it, in
// fp32. An element counts to 2^-39 of the largest one of its group.
// SPDX-License-Identifier: MIT
#pragma once
#include "kernels/decode/rare/token_powers.cuh"
#include "kernels/decode/scores.cuh"

namespace kv {

template <class S>
concept DividesElements = S::kDividesElements;

constexpr u32 kElementLift = 14;  // elements stay below 2^15

template <class Plan, DividesElements S>
struct TokenPowers<Plan, S> : PowersOfRows<kElementLift> {
  static constexpr bool kIsF32 = S::kReadWords == S::kReadCodes;

  KV_DEVICE void find(SharedAddress stage, const u32 (&misalignment)[2], int row, int group) {
    using K = typename Plan::K;
    u32 largest[2] = {};
    KV_UNROLL
    for (int i = 0; i < 2; ++i) {
      KV_NO_UNROLL
      for (int read = 0; read < S::kReads; ++read) {
        u32 w[S::kReadWords];
        load_codes<S>(stage + (row / 8 + i) * 8 * K::kPitch, row % 8 * K::kPitch + misalignment[i], group, read,
                      lane() & 3, w);
        KV_UNROLL
        for (int j = 0; j < S::kReadWords; ++j) {
          largest[i] = larger(largest[i], w[j] & 0x7fffffffu);
          if constexpr (!kIsF32) largest[i] = larger(largest[i], w[j] << 16 & 0x7fffffffu);
        }
      }
    }
    this->set(largest);
  }
  KV_DEVICE void divide(int i, u32 (&w)[S::kReadWords]) const {
    const float down = this->down(i);
    KV_UNROLL
    for (u32& word : w) {
      if constexpr (kIsF32)
        word = bits_of(float_of(word) * down);
      else  // exact, so the upper halves of the products are the bfloats
        word = permute(bits_of(float_of(word << 16) * down), bits_of(float_of(word & 0xffff0000u) * down), 0x7632);
    }
  }
};

}  // namespace kv
