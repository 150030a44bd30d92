// Scores of keys whose codes count from a zero point, on integers. A code c of a token with zero point z and scale d
// stands for (c - z) d. The products are those of c + f, where f = kSumFactor puts the codes around 0; the rest is the
// same for all queries of a column, but for the sum of Q:
//
//   sum q (c - z) d = (sum q (c + f) - (z / f + 1) f sum q) d
//
// SPDX-License-Identifier: MIT
#pragma once
#include "kernels/decode/scores.cuh"

namespace kv {

// The section S for scores.cuh, which adds no zero points.
template <class S>
struct Centred : S {
  static constexpr bool kCountsFromZero = false;
};

// In place of that of scores.cuh.
template <class Plan, class S>
requires(S::kCountsFromZero) KV_DEVICE
    void score_section_of_integers(Scores<Plan> (&s)[Plan::kSubtiles], SharedAddress stage, int first,
                                   const u32 (&misalignment)[Plan::kSubtiles][2], const Queries<Plan>& queries,
                                   const Gather<Plan, S>& gather) {
  using K = typename Plan::K;
  using Bare = Centred<S>;
  score_section_of_integers<Plan, Bare>(s, stage, first, misalignment, queries,
                                        Gather<Plan, Bare>{gather.common_factor, queries, gather.softmax});
  const int g = lane() >> 2, c = lane() & 3;
  KV_UNROLL
  for (int group = 0; group < S::kGroups; ++group) KV_UNROLL
  for (int sub = 0; sub < Plan::kSubtiles; ++sub) {
    float shift[2];
    KV_UNROLL
    for (int i = 0; i < 2; ++i) {
      const SharedAddress at = scales_of<K, S>(stage, misalignment[sub][i], first + sub * 16 + g + i * 8, group, c);
      shift[i] = S::zero_value(at, 0) * (1.f / Plan::kSumFactor) - S::scale(at, 0);
    }
    KV_UNROLL
    for (int n = 0; n < Plan::kColumnBlocks; ++n) {
      float factor[4];
      gather.factor(factor, shift, n);
      KV_UNROLL
      for (int j = 0; j < 4; ++j) s[sub][n][j] += factor[j] * float(int(queries.sum(group, n * 2 + j % 2)));
    }
  }
}

}  // namespace kv
