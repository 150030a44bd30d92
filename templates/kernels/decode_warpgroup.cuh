// decode, the products of a team of four warps as one warpgroup (sm_90a): the columns stand in shared memory, queries as well as
// probabilities, and need neither registers nor loads. A warp's fragments of K and V are those of decode_keys and decode_values: 16 tokens
// of 64, and a quarter of V's dimensions.
// SPDX-License-Identifier: MIT
#pragma once
#include "core/wgmma_columns.cuh"
#include "kernels/decode_team.cuh"

namespace kv {

template <class Plan>
struct WarpgroupProducts {
  static_assert(Plan::kTeam == 4 && Plan::kValueShare == 4 && Plan::kSubtiles == 1 && Plan::kQueryParts == 1,
                "a warpgroup shares rows of 64, for one part of Q");
  static constexpr int kColumns = Plan::kColumnBlocks * 8, kOperand = kColumns * 32;  // bytes, of 16 k

  KV_DEVICE static void publish() { publish_operands(); }

  // sum += the lane's run of K times Q, whose first fragment is given.
  template <int kPairs>
  KV_DEVICE static void score_run(Scores<Plan>& sum, const u32 (&a)[kPairs], const u32 (&b)[kPairs], int fragment) {
    const auto at = [&](int i) -> float& { return sum[i / 4][i % 4]; };
    wgmma_begin();
    KV_UNROLL
    for (int step = 0; step < kPairs / 2; ++step)
      wgmma_columns<kColumns, true, false>(at, a[2 * step], b[2 * step], a[2 * step + 1], b[2 * step + 1],
                                           Plan::kQueriesAt + (fragment / Plan::kColumnBlocks + step) * kOperand);
    wgmma_commit();
    wgmma_wait<0>();
    KV_UNROLL
    for (int i = 0; i < kColumns / 2; ++i) settle(at(i));
  }

  // Scales of V join its fragments: the probabilities are those of all warps.
  template <class S>
  KV_DEVICE static void accumulate(Sums<Plan>& sums, SharedAddress stage, const u32 (&skew)[1][4], int owner,
                                   Table table) {
    constexpr int kTiles = S::kRunCodes / 2;
    KV_UNROLL
    for (int i = 0; i < S::kGroups * S::kRuns; ++i) {
      const int group = i / S::kRuns, run = i % S::kRuns;
      u32 low[S::kRunCodes], high[S::kRunCodes];
      columns<Plan, S>(low, high, stage, 0, skew[0], group, run, table);
      if constexpr (S::kScalesValues) scale_columns<Plan, S>(low, high, stage, 0, skew[0], group, run);
      if constexpr (S::kScalesGroups && !Plan::kScalesProbabilities) {
        scale_pairs(low, sums.value_scales.relative(S::kFirstScaled + group, 0, 0), 0);
        scale_pairs(high, sums.value_scales.relative(S::kFirstScaled + group, 0, 1), 0);
      }
      wgmma_begin();
      KV_UNROLL
      for (int tile = 0; tile < kTiles; ++tile) {
        const auto at = [&](int j) -> float& {
          return sums.o[j / 4][S::kFirst / 16 / Plan::kValueShare + i * kTiles + tile][j % 4];
        };
        wgmma_columns<kColumns, true, true>(at, low[2 * tile], low[2 * tile + 1], high[2 * tile], high[2 * tile + 1],
                                            TeamProbabilities<Plan>::of_warp(owner));
      }
      wgmma_commit();
    }
  }
  KV_DEVICE static void finish(Sums<Plan>& sums) {
    wgmma_wait<0>();
    KV_UNROLL
    for (auto& block : sums.o) {
      KV_UNROLL
      for (auto& tile : block) {
        KV_UNROLL
        for (float& sum : tile) settle(sum);
      }
    }
  }
};

}  // namespace kv
