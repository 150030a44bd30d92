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
  static_assert(Plan::kTeam == 4 && Plan::kValueShare == 4 && Plan::kQueryParts == 1,
                "a warpgroup shares rows of 64, for one part of Q");
  static constexpr int kColumns = Plan::kColumnBlocks * 8, kOperand = kColumns * 32;  // bytes, of 16 k

  KV_DEVICE static void publish() { publish_operands(); }

  KV_DEVICE static void score(Scores<Plan> (&x)[Plan::kSubtiles], SharedAddress stage,
                              const u32 (&skew)[Plan::kSubtiles][2], const Queries<Plan>& queries, Table table,
                              float scale, const Softmax<Plan>& softmax) {
    using S = typename Plan::KeyCodes;
    constexpr bool kIsPlain = S::kDim == Plan::kKeyDim && !S::kIsMasked && !S::kScalesValues && !S::kRenormalises &&
                              !S::kHasRest && !S::kAddsMinima;
    if constexpr (kIsPlain)
      score_plain<S>(x, stage, skew, table, scale, softmax);
    else
      kv::score<Plan>(x, stage, 0, skew, queries, table, scale, softmax);
  }

  // sum += the lane's run of K times Q, whose first fragment is given; adds = false: sum = that.
  template <int kPairs>
  KV_DEVICE static void score_run(Scores<Plan>& sum, const u32 (&a)[kPairs], const u32 (&b)[kPairs], int fragment) {
    issue_run(sum, a, b, fragment, true);
    settle_scores(sum);
  }

  // Scales of V join its fragments: the probabilities are those of all warps.
  template <class S>
  KV_DEVICE static void accumulate(Sums<Plan>& sums, SharedAddress stage, const u32 (&skew)[Plan::kSubtiles][4],
                                   int owner, Table table) {
    constexpr int kTiles = S::kRunCodes / 2;
    KV_UNROLL
    for (int i = 0; i < S::kGroups * S::kRuns * Plan::kSubtiles; ++i) {
      const int sub = i % Plan::kSubtiles, run_of_all = i / Plan::kSubtiles, group = run_of_all / S::kRuns,
                run = run_of_all % S::kRuns;
      u32 low[S::kRunCodes], high[S::kRunCodes];
      columns<Plan, S>(low, high, stage, sub * 16, skew[sub], group, run, table);
      if constexpr (S::kScalesValues) scale_columns<Plan, S>(low, high, stage, sub * 16, skew[sub], group, run);
      if constexpr (S::kScalesGroups && !Plan::kScalesProbabilities) {
        scale_pairs(low, sums.value_scales.relative(S::kFirstScaled + group, sub, 0), 0);
        scale_pairs(high, sums.value_scales.relative(S::kFirstScaled + group, sub, 1), 0);
      }
      wgmma_begin();
      KV_UNROLL
      for (int tile = 0; tile < kTiles; ++tile) {
        const auto at = [&](int j) -> float& {
          return sums.o[j / 4][S::kFirst / 16 / Plan::kValueShare + run_of_all * kTiles + tile][j % 4];
        };
        wgmma_columns<kColumns, true>(at, low[2 * tile], low[2 * tile + 1], high[2 * tile], high[2 * tile + 1],
                                      TeamProbabilities<Plan>::of_warp(owner) + sub * kOperand, true);
      }
      wgmma_commit();
      wgmma_wait<0>();  // the next fragments get the registers of these
    }
  }
  KV_DEVICE static void finish(Sums<Plan>& sums) {
    KV_UNROLL
    for (auto& block : sums.o) {
      KV_UNROLL
      for (auto& tile : block) {
        KV_UNROLL
        for (float& sum : tile) settle(sum);
      }
    }
  }

 private:
  template <int kPairs>
  KV_DEVICE static void issue_run(Scores<Plan>& sum, const u32 (&a)[kPairs], const u32 (&b)[kPairs], int fragment,
                                  bool adds) {
    const auto at = [&](int i) -> float& { return sum[i / 4][i % 4]; };
    KV_UNROLL
    for (int i = 0; i < kColumns / 2; ++i) settle(at(i));  // else the compiler waits for each product by itself
    wgmma_begin();
    KV_UNROLL
    for (int step = 0; step < kPairs / 2; ++step)
      wgmma_columns<kColumns, false>(at, a[2 * step], b[2 * step], a[2 * step + 1], b[2 * step + 1],
                                     Plan::kQueriesAt + (fragment / Plan::kColumnBlocks + step) * kOperand,
                                     adds || step > 0);
    wgmma_commit();
  }
  KV_DEVICE static void settle_scores(Scores<Plan>& sum) {
    wgmma_wait<0>();
    KV_UNROLL
    for (int i = 0; i < kColumns / 2; ++i) settle(sum[i / 4][i % 4]);
  }

  // Keys of one section whose groups have nothing but a scale: a group of a score is one product, one scale and one sum away.
  template <class S>
  KV_DEVICE static void score_plain(Scores<Plan> (&x)[Plan::kSubtiles], SharedAddress stage,
                                    const u32 (&skew)[Plan::kSubtiles][2], Table table, float scale,
                                    const Softmax<Plan>& softmax) {
    using K = typename Plan::K;
    const int g = lane() >> 2, c = lane() & 3;
    KV_UNROLL
    for (int group = 0; group < S::kGroups; ++group) {
      Scores<Plan> sum[Plan::kSubtiles] = {};
      float scales[Plan::kSubtiles][2];
      KV_UNROLL
      for (int i = 0; i < Plan::kSubtiles * S::kRuns; ++i) {
        const int sub = i / S::kRuns, run = i % S::kRuns, row = sub * 16;
        u32 low[S::kRunWords], high[S::kRunWords], a[S::kRunCodes / 2], b[S::kRunCodes / 2];
        load_codes<S>(stage + row * K::kPitch, g * K::kPitch + skew[sub][0], group, run, c, low);
        load_codes<S>(stage + (row + 8) * K::kPitch, g * K::kPitch + skew[sub][1], group, run, c, high);
        S::Run::row(low, a, table);
        S::Run::row(high, b, table);
        KV_UNROLL
        for (int half = 0; half < 2 && run == 0; ++half) {
          scales[sub][half] = scale;
          if constexpr (S::kScalesGroups)
            scales[sub][half] *= S::scale(scales_of<K, S>(stage, skew[sub][half], row + g + 8 * half, group, c), 0);
        }
        issue_run(sum[sub], a, b, (group * S::kRuns + run) * (S::kRunCodes / 4) * Plan::kColumnBlocks, run > 0);
        wgmma_wait<0>();  // the next fragments get the registers of these
      }
      KV_UNROLL
      for (int sub = 0; sub < Plan::kSubtiles; ++sub) {
        settle_scores(sum[sub]);
        KV_UNROLL
        for (int i = 0; i < kColumns / 2; ++i) {
          const float before = group > 0 ? x[sub][i / 4][i % 4] : -float(softmax.base[i / 4][i % 2]);
          x[sub][i / 4][i % 4] = sum[sub][i / 4][i % 4] * scales[sub][i % 4 / 2] + before;
        }
      }
    }
  }
};

}  // namespace kv
