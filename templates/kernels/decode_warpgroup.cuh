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

  KV_DEVICE static void score(Scores<Plan> (&x)[1], SharedAddress stage, const u32 (&skew)[1][2],
                              const Queries<Plan>& queries, Table table, float scale, const Softmax<Plan>& softmax) {
    using S = typename Plan::KeyCodes;
    constexpr bool kIsPlain = S::kDim == Plan::kKeyDim && S::kGroups == 1 && !S::kIsMasked && !S::kScalesValues &&
                              !S::kRenormalises && !S::kHasRest && !S::kAddsMinima;
    if constexpr (kIsPlain)
      score_plain<S>(x[0], stage, skew[0], table, scale, softmax);
    else
      kv::score<Plan>(x, stage, 0, skew, queries, table, scale, softmax);
  }

  // sum += the lane's run of K times Q, whose first fragment is given; adds = false: sum = that.
  template <int kPairs>
  KV_DEVICE static void score_run(Scores<Plan>& sum, const u32 (&a)[kPairs], const u32 (&b)[kPairs], int fragment,
                                  bool adds = true) {
    const auto at = [&](int i) -> float& { return sum[i / 4][i % 4]; };
    wgmma_begin();
    KV_UNROLL
    for (int step = 0; step < kPairs / 2; ++step)
      wgmma_columns<kColumns, false>(at, a[2 * step], b[2 * step], a[2 * step + 1], b[2 * step + 1],
                                     Plan::kQueriesAt + (fragment / Plan::kColumnBlocks + step) * kOperand,
                                     adds || step > 0);
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
        wgmma_columns<kColumns, true>(at, low[2 * tile], low[2 * tile + 1], high[2 * tile], high[2 * tile + 1],
                                      TeamProbabilities<Plan>::of_warp(owner), true);
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

 private:
  // Keys of one group and at most one scale a token: every score is one product, one scale and one base away.
  template <class S>
  KV_DEVICE static void score_plain(Scores<Plan>& x, SharedAddress stage, const u32 (&skew)[2], Table table,
                                    float scale, const Softmax<Plan>& softmax) {
    using K = typename Plan::K;
    const int g = lane() >> 2, c = lane() & 3;
    float scales[2] = {scale, scale};
    KV_UNROLL
    for (int run = 0; run < S::kRuns; ++run) {
      u32 low[S::kRunWords], high[S::kRunWords], a[S::kRunCodes / 2], b[S::kRunCodes / 2];
      load_codes<S>(stage, g * K::kPitch + skew[0], 0, run, c, low);
      load_codes<S>(stage + 8 * K::kPitch, g * K::kPitch + skew[1], 0, run, c, high);
      S::Run::row(low, a, table);
      S::Run::row(high, b, table);
      if constexpr (S::kScalesGroups) {
        if (run == 0) {
          KV_UNROLL
          for (int i = 0; i < 2; ++i) scales[i] *= S::scale(scales_of<K, S>(stage, skew[i], g + 8 * i, 0, c), 0);
        }
      }
      score_run(x, a, b, run * (S::kRunCodes / 4) * Plan::kColumnBlocks, run > 0);
    }
    KV_UNROLL
    for (int i = 0; i < kColumns / 2; ++i)
      x[i / 4][i % 4] = x[i / 4][i % 4] * scales[i % 4 / 2] - softmax.base[i / 4][i % 2];
  }
};

}  // namespace kv
