// The consumers of prefill: warpgroups that attend to kBlocks blocks of 64 query rows each, tile after tile.
//
//   S [64 rows x 128 tokens] = Q [64 x kKeyDim] K^T [kKeyDim x 128]    both operands in shared memory
//   O [64 rows x kValueDim] += P [64 x 128] V [128 x kValueDim]        P = 2^(S - reference maximum) in registers
//
// The warpgroups take turns at the tensor cores. In its turn a warpgroup multiplies P V of the block before and Q K^T
// of this block, and passes the turn on within Q K^T; its softmax then runs beside the products of the other one.
//
// The online softmax is relative to a reference maximum that moves only when a score is more than kSlack above it, so
// the output is hardly ever rescaled, and probabilities are at most 2^kSlack.
// SPDX-License-Identifier: MIT
#pragma once
#include "kernels/prefill/producer.cuh"
#include "kernels/prefill/rows.cuh"

namespace kv {

constexpr float kSlack = 8.f;       // log2 of the largest probability; fp16 holds 2^15
constexpr float kNoScore = -1e30f;  // reference maximum of a row that has seen no token
constexpr int kPassShare = 4;       // the turn is passed on before the last 1 / kPassShare of Q K^T

// The online softmax of the lane's rows g and g + 8. Scores times `unit` are exponents of 2.
struct RowSoftmax {
  float reference_max[2],  // base 2
      sum[2];              // the lane's partial denominator, over its own columns

  KV_DEVICE void reset() {
    KV_UNROLL
    for (int h = 0; h < 2; ++h) reference_max[h] = kNoScore, sum[h] = 0.f;
  }

  // s: scores become probabilities. If a reference maximum moves, o is rescaled.
  template <int kSums>
  KV_DEVICE void apply(float (&s)[64], float (&o)[kSums], float unit) {
    float most[4] = {s[0], s[1], s[2], s[3]};
    KV_UNROLL
    for (int i = 4; i < 64; ++i) most[i % 4] = larger(most[i % 4], s[i]);
    float row_max[2] = {larger(most[0], most[1]) * unit, larger(most[2], most[3]) * unit};
    if (any(row_max[0] > reference_max[0] + kSlack || row_max[1] > reference_max[1] + kSlack)) {
      float rescale_factor[2];
      KV_UNROLL
      for (int h = 0; h < 2; ++h) {
        row_max[h] = larger(row_max[h], shfl_xor(row_max[h], 1));
        row_max[h] = larger(row_max[h], shfl_xor(row_max[h], 2));
        row_max[h] = larger(row_max[h], reference_max[h]);
        rescale_factor[h] = exp2_fast(reference_max[h] - row_max[h]);
        reference_max[h] = row_max[h], sum[h] *= rescale_factor[h];
      }
      KV_UNROLL
      for (int i = 0; i < kSums; ++i) o[i] *= rescale_factor[i / 2 % 2];
    }
    float part[4] = {};
    KV_UNROLL
    for (int i = 0; i < 64; ++i) {
      s[i] = exp2_fast(fma_rn(s[i], unit, -reference_max[i / 2 % 2]));
      part[i % 4] += s[i];
    }
    sum[0] += part[0] + part[1], sum[1] += part[2] + part[3];
  }
};

// Multiplies the scores of each token by its scale. scales: those of the tile.
KV_DEVICE void scale_scores(float (&s)[64], SharedAddress scales) {
  const int c = lane() & 3;
  KV_UNROLL
  for (int t = 0; t < 16; ++t) {
    u32 of_columns[2];
    load_staged_u64(of_columns, scales + (8 * t + 2 * c) * 4);
    KV_UNROLL
    for (int i = 0; i < 4; ++i) s[4 * t + i] *= float_of(of_columns[i % 2]);
  }
}

// Hides the scores of tokens that a row does not see. begin, end: the tokens that rows g and g + 8 see, from the lane's
// first token of the tile on.
KV_DEVICE void hide_unseen(float (&s)[64], const int (&begin)[2], const int (&end)[2]) {
  KV_UNROLL
  for (int i = 0; i < 64; ++i) {
    const int at = i / 4 * 8 + i % 2, h = i / 2 % 2;
    if (at < begin[h] || at >= end[h]) s[i] = float_of(0xff800000u);  // minus infinity
  }
}
// The lane's first token of a tile.
template <class Plan>
KV_DEVICE int first_token(int tile) {
  return tile * Plan::kTokens + 2 * (lane() & 3);
}

// PlainRule is the rule of plans without features: it hides tokens that a row does not see, and leaves the sums of a
// row as they are. Plans with features have FeaturedRule (kernels/prefill/features.cuh). A rule is applied between the
// products and the softmax of each tile, and at the end of each row.
template <class Plan>
struct PlainRule {
  static constexpr bool kChangesScores = false;
  // s: of the lane's rows `row` and row + 8.
  KV_DEVICE void apply(float (&s)[64], const WorkTile& work, int row, int tile, float) const {
    if (tile < work.end_whole_tile) return;
    int end[2];
    KV_UNROLL
    for (int h = 0; h < 2; ++h)
      end[h] =
          PlainRange<Plan>{}.end(work.sequence, work.length, (row + 8 * h) / Plan::kGroup) - first_token<Plan>(tile);
    hide_unseen(s, {0, 0}, end);
  }
  // Changes the denominator of a row, and returns what its sums of output are multiplied by.
  KV_DEVICE float end_row(float, float&, const WorkTile&, int) const { return 1.f; }
};
template <class Plan, class Args>
KV_DEVICE PlainRule<Plan> rule_of(const Args&) {
  return {};
}

template <int kSums>
KV_DEVICE void multiply_values(float (&o)[kSums], const u32 (&p)[32], SharedAddress v) {
  wgmma_begin();
  KV_UNROLL
  for (int step = 0; step < 8; ++step) {
    if constexpr (kSums == 128)
      wgmma_64x256x16_transposed(o, p, v, step);
    else if constexpr (kSums == 64)
      wgmma_64x128x16_transposed(o, p, v, step);
    else
      wgmma_64x64x16_transposed(o, p, v, step);
  }
  wgmma_commit();
}
// Two groups of products; the turn is passed on between them.
template <int kSteps>
KV_DEVICE void multiply_keys(float (&s)[64], SharedAddress q, SharedAddress k) {
  wgmma_begin();
  wgmma_64x128x16<false>(s, q, k, 0);
  KV_UNROLL
  for (int step = 1; step < kSteps; ++step) {
    if (step == kSteps - kSteps / kPassShare) wgmma_commit();
    wgmma_64x128x16<true>(s, q, k, step);
  }
  wgmma_commit();
}

template <class Plan, class Args>
KV_DEVICE void consume(const Args& args) {
  using Stages = kv::Stages<Plan>;
  constexpr int kBlocks = Plan::kBlocks;
  const auto works = work_tiles_of<Plan>(args);
  const auto rule = rule_of<Plan>(args);
  constexpr bool kChangesScores = decltype(rule_of<Plan>(args))::kChangesScores;
  const int group = int(uniform(u32(warp() / 4 - 1))), g = lane() >> 2, c = lane() & 3;
  constexpr int kBlockBytes = Plan::kKeyDim / 64 * kRowPanelBytes;  // of queries
  const SharedAddress q = uniform(Plan::kQueriesAt + u32(group) * Plan::kQueryBytes);
  // Scores that are multiplied by the scales of their tokens are exponents of 2.
  const float unit = Plan::kScalesScores ? 1.f : args.scale_log2 * Plan::K::kUnit;
  open_tensor_order(group);
  constexpr int kSums = Plan::kValueDim / 2;
  float o[kBlocks][kSums], s[64];
  u32 p[32];
  RowSoftmax softmax[kBlocks];
  WorkTile work;
  int n = 0;  // the stage of the present tile
  KV_NO_UNROLL
  for (int round = 0; works.at(round, work); ++round) {
    const int first_row = work.first_row + group * (kBlocks * kBlockRows);
    sync_team<4>();  // all warps have left the place of the queries
    load_queries<Plan>(args.q, work, first_row, q);
    publish_operands();
    sync_team<4>();
    KV_UNROLL
    for (int b = 0; b < kBlocks; ++b) {
      softmax[b].reset();
      KV_UNROLL
      for (int i = 0; i < kSums; ++i) o[b][i] = 0.f;
    }
    KV_NO_UNROLL
    for (int tile = work.first_tile; tile < work.end_tile; ++tile, ++n) {
      const bool is_first = tile == work.first_tile;
      KV_UNROLL
      for (int b = 0; b < kBlocks; ++b) {
        // Where there is one block only, K of this tile implies V of the tile before: the producer fills them in order.
        if (b == 0)
          wait_phase(Stages::full(false, n), Stages::parity(n));
        else if (b == 1)
          wait_phase(Stages::full(true, n), Stages::parity(n));
        await_tensor_order(group);
        if (b > 0 || !is_first) {
          float(&before)[kSums] = o[b > 0 ? b - 1 : kBlocks - 1];
          multiply_values(before, p, uniform(Stages::operand(true, b > 0 ? n : n - 1)));
          wgmma_wait<0>();
          settle_sums(before);
          keep_words(p);
        }
        multiply_keys<Plan::kKeyDim / 16>(s, q + b * kBlockBytes, uniform(Stages::operand(false, n)));
        if (b == 0 && !is_first) Stages::leave(true, n - 1);
        wgmma_wait<1>();
        pass_tensor_order(group);
        wgmma_wait<0>();
        settle_sums(s);
        if constexpr (Plan::kScalesScores) scale_scores(s, Stages::score_scales(n));
        if (b == kBlocks - 1) Stages::leave(false, n);
        rule.apply(s, work, first_row + b * kBlockRows + warp() % 4 * 16 + g, tile, unit);
        softmax[b].apply(s, o[b], kChangesScores ? 1.f : unit);
        KV_UNROLL
        for (int i = 0; i < 32; ++i) p[i] = pack_f16x2(s[2 * i], s[2 * i + 1]);
        keep_words(p);
        finish_before_barrier(softmax[b].sum[0] + softmax[b].sum[1]);
      }
    }
    if (work.end_tile > work.first_tile) {
      if (kBlocks == 1) wait_phase(Stages::full(true, n - 1), Stages::parity(n - 1));
      multiply_values(o[kBlocks - 1], p, uniform(Stages::operand(true, n - 1)));
      wgmma_wait<0>();
      settle_sums(o[kBlocks - 1]);
      keep_words(p);
      Stages::leave(true, n - 1);
    }
    KV_UNROLL
    for (int b = 0; b < kBlocks; ++b) {
      float factor[2];
      KV_UNROLL
      for (int h = 0; h < 2; ++h) {
        float sum = softmax[b].sum[h];
        sum += shfl_xor(sum, 1);
        sum += shfl_xor(sum, 2);
        const int row = first_row + b * kBlockRows + warp() % 4 * 16 + g + 8 * h;
        const float scale =
            args.value_scale * Plan::V::kUnit * rule.end_row(softmax[b].reference_max[h], sum, work, row);
        factor[h] = sum > 0.f ? div_rn(scale, sum) : sum == 0.f ? 0.f : sum;
      }
      store_output<Plan>(args.out, work, first_row + b * kBlockRows, o[b], factor, q);
    }
  }
}

}  // namespace kv
