// Sparse V: V of tokens that hardly count is not multiplied. Of tokens that are taken together (a subtile group of a
// warp), V is passed over if every row gives each of them a probability below 2^Plan::kSparseLog2 = e times the largest
// that the warp has seen so far. Their weight stays in the denominator.
//
// Error. Let W be the weight of the tokens passed over, their share of the denominator. The output misses sum p_t v_t /
// sum p_t over them, so |error| <= W max |v_t| over them, in every norm. Were the weight taken out too, the rest would
// grow by 1 / (1 - W) and the error be W |mean of the rest - mean of those|, up to twice as much. Each of them has p_t
// < e p_max, and the denominator is at least p_max plus their own sum, so W < n e / (1 + n e) for n tokens; and W is at
// most the weight of all tokens below e p_max.
// SPDX-License-Identifier: MIT
#pragma once
#include "device/simt.cuh"
#include "kernels/decode/softmax.cuh"

namespace kv {

template <class Seen>
struct SparseValues : Seen {
  // x: scores relative to the base, which lies kBias below a maximum of tokens seen: the largest so far is at least
  // kBias. Not before a renewal: then a row has seen no token yet, or one of these is the largest by far. A NaN counts.
  template <class Plan, class Scores>
  KV_DEVICE static bool skips_values(const Scores& x, bool needs_renewal) {
    constexpr float kLeast = kBias + Plan::kSparseLog2;
    bool counts = needs_renewal;
    KV_UNROLL
    for (int i = 0; i < Plan::kSubtiles * 4 * Plan::kColumnBlocks; ++i) {
      const int n = i / 4 % Plan::kColumnBlocks, row = n * 8 + 2 * (lane() & 3) + i % 2;
      const bool is_row = Plan::kRows % 8 == 0 || row < Plan::kRows;  // columns beyond are there to fill the fragment
      counts |= is_row && !(x[i / (4 * Plan::kColumnBlocks)][n][i % 4] < kLeast);
    }
    return !any(counts);
  }
};

}  // namespace kv
