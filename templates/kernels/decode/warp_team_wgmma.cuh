// Warp team by wgmma (sm_90a): the products of a team of four warps as one warpgroup. The second operand (queries for
// scores, probabilities for the output) is in shared memory, so it needs neither registers nor loads. A warp's
// fragments of K and V are those of scores.cuh and values.cuh: 16 of the 64 tokens of K, and a quarter of V's
// dimensions.
// SPDX-License-Identifier: MIT
#pragma once
#include "device/wgmma_columns.cuh"
#include "kernels/decode/warp_team.cuh"

namespace kv {

template <class Plan>
struct WarpgroupProducts {
  static_assert(Plan::kTeam == 4 && Plan::kValueShare == 4, "a warpgroup shares rows of 64");
  static constexpr int kColumns = Plan::kColumnBlocks * 8, kOperand = kColumns * 32;  // bytes of an operand of 16 k

  // Addresses of the lane, computed once.
  struct Places {
    SharedAddress probabilities =
        hide_from_optimizer(TeamProbabilities<Plan>::of_warp(warp()) + lane() * 4);  // where it stores them
    u32 scales =
        Plan::kScalesAreMatrices ? hide_from_optimizer(place_of_scales()) : 0;  // its row of the matrices of scales
  };

  KV_DEVICE static void publish() { publish_operands(); }
  KV_DEVICE static void store(const u32 (&p)[Plan::kSubtiles][Plan::kColumnBlocks][2], const Places& places,
                              SharedAddress shown) {
    constexpr int kWords = 2 * Plan::kColumnBlocks;
    constexpr u32 kExchanged =
        Plan::kByMatrices ? 16 : 0;  // bytes of a row: exchanges neighbours among tokens 8 to 15, as V has them
    const SharedAddress at[2] = {places.probabilities + shown, (places.probabilities ^ kExchanged) + shown};
    KV_UNROLL
    for (int i = 0; i < Plan::kSubtiles * kWords; ++i)
      store_columns(at[i % 2] + i * TeamProbabilities<Plan>::kMatrix, p[i / kWords][i % kWords / 2][i % 2]);
  }

  KV_DEVICE static void score(Scores<Plan> (&x)[Plan::kSubtiles], SharedAddress stage,
                              const u32 (&misalignment)[Plan::kSubtiles][2], const Queries<Plan>& queries, Table table,
                              float scale, const Softmax<Plan>& softmax, TokenScales<Plan>& value_scales,
                              const Places& places) {
    using S = typename Plan::KeyCodes;
    constexpr bool kIsPlain = S::kDim == Plan::kKeyDim && !S::kIsMasked && !S::kScalesValues && !S::kRenormalises &&
                              S::kRests == 0 && !S::kAddsMinima;
    static_assert(kIsPlain || !Plan::kScalesAreMatrices, "keys that are not plain load their scales themselves");
    static_assert(Plan::kSubtiles == 1 || !Plan::kScalesAreMatrices, "scales of a tile of 16 tokens");
    if constexpr (kIsPlain)
      score_plain<S>(x, stage, misalignment, queries, table, scale, softmax, value_scales, places);
    else
      kv::score<Plan>(x, stage, 0, misalignment, queries, table, scale, softmax);
  }

  // sum += the lane read of K times the first kTerms terms of Q, from B fragment `fragment` on.
  template <class S, int kTerms, int kPairs>
  KV_DEVICE static void score_read(Scores<Plan>& sum, const u32 (&a)[kPairs], const u32 (&b)[kPairs], int fragment) {
    settle_all(sum);
    issue<S, kTerms, kPairs / 2>(sum, a, b, 0, fragment / Plan::kColumnBlocks, true);
    wgmma_wait<0>();
    settle_all(sum);
  }

  // Accumulates one section of V. Where scales are not in the probabilities, they multiply V's fragments, because the
  // probabilities are operands of all warps.
  template <class S>
  KV_DEVICE static void accumulate(Sums<Plan>& sums, SharedAddress stage, const u32 (&misalignment)[Plan::kSubtiles][4],
                                   SharedAddress probabilities, Table table) {
    constexpr int kTiles = S::kReadCodes / 2;
    KV_UNROLL
    for (int i = 0; i < S::kGroups * S::kReads * Plan::kSubtiles; ++i) {
      const int sub = i % Plan::kSubtiles, read_of_all = i / Plan::kSubtiles, group = read_of_all / S::kReads,
                read = read_of_all % S::kReads;
      u32 low[S::kReadCodes], high[S::kReadCodes];
      columns<Plan, S>(low, high, stage, sub * 16, misalignment[sub], group, read, table, sums.value_scales);
      if constexpr (S::kScalesValues)
        scale_columns<Plan, S>(low, high, stage, sub * 16, misalignment[sub], group, read, sums.value_scales);
      if constexpr (S::kScalesGroups && !Plan::kScalesProbabilities) {
        scale_pairs(low, sums.value_scales.template relative<S>(group, sub, 0), 0);
        scale_pairs(high, sums.value_scales.template relative<S>(group, sub, 1), 0);
      }
      wgmma_begin();
      KV_UNROLL
      for (int tile = 0; tile < kTiles; ++tile) {
        const auto at = [&](int j) -> float& {
          return sums.o[j / 4][S::kFirst / 16 / Plan::kValueShare + read_of_all * kTiles + tile][j % 4];
        };
        wgmma_columns<kColumns, true>(at, low[2 * tile], low[2 * tile + 1], high[2 * tile], high[2 * tile + 1],
                                      columns_at(probabilities + sub * kOperand), true);
      }
      wgmma_commit();
      wgmma_wait<0>();  // the next fragments take the registers of these
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
  // Scales that are halves, one a token, are loaded as matrices, with the scales of eight tokens in a row. Even rows
  // hold those of tokens 0..7 and odd rows those of tokens 8..15, so the transposed load gives each lane the scales of
  // its tokens g and g + 8: first of K, then of V.
  KV_DEVICE static u32 place_of_scales() {
    const bool is_value = lane() >> 3 & 1;
    return (is_value ? Plan::K::kStageBytes + Plan::V::kScalesAt : Plan::K::kScalesAt) + lane() % 2 * 16;
  }

  // Issues kSteps k16 steps of a lane read, from its step `of_read` on: sum += their products, or sum = their products
  // if `adds` is false. step: number of the first one among the steps of all of Q.
  template <class S, int kTerms, int kSteps, int kPairs>
  KV_DEVICE static void issue(Scores<Plan>& sum, const u32 (&a)[kPairs], const u32 (&b)[kPairs], int of_read, int step,
                              bool adds) {
    const auto at = [&](int i) -> float& { return sum[i / 4][i % 4]; };
    wgmma_begin();
    KV_UNROLL
    for (int i = 0; i < kSteps * kTerms; ++i) {
      const int of_issue = i / kTerms, pair = 2 * (of_read + of_issue),
                operand = (step + of_issue) * Plan::kQueryTerms + i % kTerms;
      wgmma_columns<kColumns, false, S::kAsBfloats>(at, a[pair], b[pair], a[pair + 1], b[pair + 1],
                                                    columns_at(Plan::kQueriesAt + operand * kOperand), adds || i > 0);
    }
    wgmma_commit();
  }
  // Tells the compiler that no product in flight writes `sum`. Otherwise it waits for each product separately.
  KV_DEVICE static void settle_all(Scores<Plan>& sum) {
    KV_UNROLL
    for (int i = 0; i < kColumns / 2; ++i) settle(sum[i / 4][i % 4]);
  }

  // Scores of K with one section whose groups have nothing but a scale. Each group takes one product, one scale and one
  // sum. Products of a few steps are under way while the next codes are decoded.
  template <class S>
  KV_DEVICE static void score_plain(Scores<Plan> (&x)[Plan::kSubtiles], SharedAddress stage,
                                    const u32 (&misalignment)[Plan::kSubtiles][2], const Queries<Plan>& queries,
                                    Table table, float scale, const Softmax<Plan>& softmax,
                                    [[maybe_unused]] TokenScales<Plan>& value_scales,
                                    [[maybe_unused]] const Places& places) {
    using K = typename Plan::K;
    const int g = lane() >> 2, c = lane() & 3;
    constexpr int kReadSteps = S::kReadCodes / 4,
                  kSteps = kReadSteps % 4 == 0 ? 4 : kReadSteps;  // steps whose products are under way together
    [[maybe_unused]] u32 both[4];                                 // scales of K, and those of V, twice
    if constexpr (Plan::kScalesAreMatrices) {
      load_matrices_transposed(both, stage + places.scales);
      value_scales.halves[0] = both[1];
    }
    KV_UNROLL
    for (int group = 0; group < S::kGroups; ++group) {
      Scores<Plan> sum[Plan::kSubtiles] = {};
      float scales[Plan::kSubtiles][2];
      KV_UNROLL
      for (int i = 0; i < Plan::kSubtiles * S::kReads; ++i) {
        const int sub = i / S::kReads, read = i % S::kReads, row = sub * 16;
        u32 low[S::kReadWords], high[S::kReadWords], a[S::kReadCodes / 2], b[S::kReadCodes / 2];
        load_codes<S>(stage + row * K::kPitch, g * K::kPitch + misalignment[sub][0], group, read, c, low);
        load_codes<S>(stage + (row + 8) * K::kPitch, g * K::kPitch + misalignment[sub][1], group, read, c, high);
        S::Read::row(low, a, table);
        S::Read::row(high, b, table);
        KV_UNROLL
        for (int half = 0; half < 2 && read == 0; ++half) {
          scales[sub][half] = scale;
          if constexpr (Plan::kScalesAreMatrices)
            scales[sub][half] *= f32_from_f16(both[0] >> 16 * half & 0xffffu);
          else if constexpr (S::kScalesGroups)
            scales[sub][half] *=
                S::scale(scales_of<K, S>(stage, misalignment[sub][half], row + g + 8 * half, group, c), 0);
        }
        if (read == 0) settle_all(sum[sub]);
        KV_UNROLL
        for (int step = 0; step < kReadSteps; step += kSteps) {
          issue<S, S::kQueryTerms, kSteps>(sum[sub], a, b, step, (group * S::kReads + read) * kReadSteps + step,
                                           read > 0 || step > 0);
          if (i > 0 || step > 0) wgmma_wait<1>();  // the registers of the fragments before are free
        }
      }
      wgmma_wait<0>();
      u32 reference_max[Plan::kColumnBlocks][2];
      KV_UNROLL
      for (int n = 0; n < Plan::kColumnBlocks; ++n)
        if (group == 0) load_staged_u64(reference_max[n], softmax.reference_max[n].at);
      KV_UNROLL
      for (int sub = 0; sub < Plan::kSubtiles; ++sub) {
        settle_all(sum[sub]);
        apply_rare_units<Plan>(queries, sum[sub]);
        KV_UNROLL
        for (int i = 0; i < kColumns / 2; ++i) {
          const float before = group > 0 ? x[sub][i / 4][i % 4] : -float_of(reference_max[i / 4][i % 2]);
          x[sub][i / 4][i % 4] = sum[sub][i / 4][i % 4] * scales[sub][i % 4 / 2] + before;
        }
      }
    }
  }
};

}  // namespace kv
