// Sparse V: V is not multiplied for tokens whose probabilities are negligible. Tokens are taken together as a warp
// takes them (kSubtiles x 16). They are skipped if every row gives each of them a probability below e = 2^kSparseLog2
// times the largest that the warp has seen so far. Their weight stays in the denominator.
//
// Error. Let W be the weight of the skipped tokens: their sum over the denominator. The output lacks sum p_t v_t / sum
// p_t over them, so |error| <= W max |v_t| over them, in every norm. If the weight were taken out too, the rest would
// grow by 1 / (1 - W), and the error would be W |mean of the rest - mean of the skipped|, up to twice as much. Each
// skipped token has p_t < e p_max, and the denominator is at least p_max plus their own sum, so W < n e / (1 + n e) for
// n tokens. W is also at most the weight of all tokens below e p_max.
// SPDX-License-Identifier: MIT
#pragma once
#include "device/simt.cuh"
#include "kernels/decode/softmax.cuh"

namespace kv {

template <class Seen>
struct SparseValues : Seen {
  // Returns whether these tokens are skipped. x: scores relative to the reference maximum, which is kBias below the
  // score of some earlier token, so the largest x so far is at least kBias. If a rescale is due, nothing is skipped: a
  // row has seen no token yet, or one of these tokens is the largest by far. A NaN counts as large.
  template <class Plan, class Scores>
  KV_DEVICE static bool skips_values(const Scores& x, bool needs_rescale) {
    constexpr float kLeast = kBias + Plan::kSparseLog2;
    bool counts = needs_rescale;
    KV_UNROLL
    for (int i = 0; i < Plan::kSubtiles * 4 * Plan::kColumnBlocks; ++i) {
      const int n = i / 4 % Plan::kColumnBlocks, row = n * 8 + 2 * (lane() & 3) + i % 2;
      const bool is_row =
          Plan::kRows % 8 == 0 || row < Plan::kRows;  // columns beyond the last row only fill the fragment
      counts |= is_row && !(x[i / (4 * Plan::kColumnBlocks)][n][i % 4] < kLeast);
    }
    return !any(counts);
  }
};

}  // namespace kv
