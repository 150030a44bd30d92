// Scores of keys whose scales multiply values and lead beyond fp16 (E8M0, bf16, f32 and fp16 scales of a part of a
// block): the scales of a token's lane reads are divided by the power of two of the largest one, and the sums of
// products are multiplied by it, in fp32. A scale far below the largest of its token loses bits as a small value would.
// SPDX-License-Identifier: MIT
#pragma once
#include "kernels/decode/rare/token_powers.cuh"
#include "kernels/decode/scores.cuh"

namespace kv {

template <class S>
concept HasWideScales = S::kHasWideScales;

constexpr u32 kScaleLift = 4;  // values, which are codes times scales, stay below 65504

template <class Plan, HasWideScales S>
struct TokenPowers<Plan, S> : PowersOfRows<kScaleLift> {
  KV_DEVICE void find(SharedAddress stage, const u32 (&misalignment)[2], int row, int group) {
    u32 largest[2] = {};
    KV_UNROLL
    for (int i = 0; i < 2; ++i) {
      const SharedAddress scales =
          scales_of<typename Plan::K, S>(stage, misalignment[i], row + 8 * i, group, lane() & 3);
      KV_UNROLL
      for (int read = 0; read < S::kReads; ++read)
        largest[i] = larger(largest[i], bits_of(absolute(S::scale(scales, scale_index<S>(read, lane() & 3)))));
    }
    this->set(largest);
  }
};

}  // namespace kv
