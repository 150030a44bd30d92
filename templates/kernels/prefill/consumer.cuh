// The consumers of prefill: warpgroups that attend to kBlocks blocks of 64 query rows each, tile after tile.
//
//   S [64 rows x 128 tokens] = Q [64 x kKeyDim] K^T [kKeyDim x 128]    both operands in shared memory
//   O [64 rows x kValueDim] += P [64 x 128] V [128 x kValueDim]        P = 2^(S - reference maximum) in registers
//
// The warpgroups take turns at the tensor cores, and the softmax of one runs beside the products of the other. With two
// blocks, a warpgroup multiplies P V of the block before and Q K^T of this block in one turn. With one block these are
// two turns. Up to 64 rows both warpgroups have the same rows and alternate between tiles, and their parts are merged
// as splits are. With one stage of K and of V, both warpgroups multiply K, then both multiply V, and while they are at
// one of the two the producer fills the other.
//
// The online softmax is in kernels/prefill/softmax.cuh.
// SPDX-License-Identifier: MIT
#pragma once
#include "kernels/prefill/softmax.cuh"
#include "kernels/prefill/splits.cuh"

namespace kv {

// attend_work_tiles is what a block does: one definition each for wgmma, mma.sync and shared rows. Plans of one of two
// kernels for a chunk of the context have an overload of prefill in kernels/prefill/context_chunks.cuh.
template <class Plan, class Args>
KV_DEVICE void attend_work_tiles(const Args& args);

template <class Plan, class Args>
KV_DEVICE void prefill(const Args& args) {
  attend_work_tiles<Plan>(args);
}

constexpr int kPassShare = 4;  // the turn is passed on before the last 1 / kPassShare of Q K^T

// Hides the scores of tokens that a row does not see. begin, end: the tokens that rows g and g + 8 see, from the lane's
// first token of the tile on.
template <int kScores>
KV_DEVICE void hide_unseen(float (&s)[kScores], const int (&begin)[2], const int (&end)[2]) {
  KV_UNROLL
  for (int i = 0; i < kScores; ++i) {
    const int at = i / 4 * 8 + i % 2, h = i / 2 % 2;
    if (at < begin[h] || at >= end[h]) s[i] = float_of(0xff800000u);  // minus infinity
  }
}
// The lane's first token of a tile. Where consumers share rows, each has half of the tokens.
template <class Plan>
KV_DEVICE int first_token(int tile) {
  const int half = Plan::kSharesRows ? (warp() - Plan::kWarps) / 4 * (Plan::kTokens / 2) : 0;
  return tile * Plan::kTokens + half + 2 * (lane() & 3);
}

// PlainRule is the rule of plans without features: it hides tokens that a row does not see, and leaves the sums of a
// row as they are. Plans with features have FeaturedRule (kernels/prefill/features.cuh). A rule is applied between the
// products and the softmax of each tile, and at the end of each row.
template <class Plan>
struct PlainRule {
  static constexpr bool kChangesScores = false;
  static constexpr bool kOpensLate =
      false;  // whether a row may see no token of the first tile, and some of a later one
  // Whether it has something to do in a tile.
  KV_DEVICE bool applies(const WorkTile& work, int tile) const { return tile >= work.end_whole_tile; }
  // s: of the lane's rows `row` and row + 8.
  template <int kScores>
  KV_DEVICE void apply(float (&s)[kScores], const WorkTile& work, int row, int tile, float) const {
    if (!applies(work, tile)) return;
    row = int(hide_from_optimizer(u32(row)));  // so that the loop over tiles holds no range of tokens in registers
    int end[2];
    KV_UNROLL
    for (int h = 0; h < 2; ++h)
      end[h] =
          PlainRange<Plan>{}.end(work.sequence, work.length, (row + 8 * h) / Plan::kGroup) - first_token<Plan>(tile);
    hide_unseen(s, {0, 0}, end);
  }
  KV_DEVICE bool sees(const WorkTile& work, int row, int token) const {
    return token < PlainRange<Plan>{}.end(work.sequence, work.length, row / Plan::kGroup);
  }
  // Changes the denominator of a row, and returns what its sums of output are multiplied by.
  KV_DEVICE float end_row(float, float&, const WorkTile&, int) const { return 1.f; }
};
template <class Plan, class Args>
KV_DEVICE PlainRule<Plan> rule_of(const Args&) {
  return {};
}

// The last 1 / kPassShare of the steps of a product are a group of their own: ahead of them the turn is passed on.
template <int kSteps>
KV_DEVICE void commit_for_pass(int step) {
  if (step == kSteps - kSteps / kPassShare) wgmma_commit();
}
template <bool kPasses, int kSums>
KV_DEVICE void multiply_values(float (&o)[kSums], const u32 (&p)[32], SharedAddress v) {
  wgmma_begin();
  KV_UNROLL
  for (int step = 0; step < 8; ++step) {
    if constexpr (kPasses) commit_for_pass<8>(step);
    if constexpr (kSums == 128)
      wgmma_64x256x16_transposed(o, p, v, step);
    else if constexpr (kSums == 64)
      wgmma_64x128x16_transposed(o, p, v, step);
    else
      wgmma_64x64x16_transposed(o, p, v, step);
  }
  wgmma_commit();
}
template <int kSteps>
KV_DEVICE void multiply_keys(float (&s)[64], SharedAddress q, SharedAddress k) {
  wgmma_begin();
  wgmma_64x128x16<false>(s, q, k, 0);
  KV_UNROLL
  for (int step = 1; step < kSteps; ++step) {
    commit_for_pass<kSteps>(step);
    wgmma_64x128x16<true>(s, q, k, step);
  }
  wgmma_commit();
}
// Passes the turn on and waits for the products.
template <int kSums>
KV_DEVICE void finish_products(float (&sums)[kSums], int group) {
  wgmma_wait<1>();
  pass_tensor_order(group);
  wgmma_wait<0>();
  settle_sums(sums);
}

// Powers of two that the sums of rows are relative to. Where V holds numbers beyond the range of fp16, plans have a
// form in kernels/prefill/exponents.cuh.
template <class Plan>
struct RowExponents {
  KV_DEVICE void reset() {}
  template <int kScores, int kSums, class Combine>
  KV_DEVICE void fit(float (&)[kScores], float (&)[kSums], const float (&)[2], int, int, const Combine&) {}
  template <int kBlocks, int kSums>
  KV_DEVICE void end(float (&)[kBlocks][kSums]) const {}
};

// Sums of output become NaN by cleared values that their rows see. Plans that hide tokens have an overload in
// kernels/prefill/hidden_values.cuh.
template <class Plan, class Rule, int kBlocks, int kSums>
KV_DEVICE void corrupt_rows(const Rule&, float (&)[kBlocks][kSums], const WorkTile&, int, int, int) {}

// Whether the sums of a work tile are over all tokens that it sees. Plans over chunks of the context have an overload
// in kernels/prefill/context_chunks.cuh.
template <class Plan, class Args, class Softmax, int kBlocks, int kSums>
KV_DEVICE bool finish_context_chunk(const Args&, const WorkTile&, Softmax (&)[kBlocks], float (&)[kBlocks][kSums]) {
  return true;
}

// Ends the rows of a work tile and stores them. first_row: of the warpgroup; first_dim: of its output. q: the place of
// its queries, which all its warps have left.
template <class Plan, class Args, class Rule, int kBlocks, int kSums>
KV_DEVICE void finish_rows(const Args& args, const Rule& rule, const WorkTile& work, int first_row,
                           const RowSoftmax (&softmax)[kBlocks], const float (&o)[kBlocks][kSums], SharedAddress q,
                           int first_dim = 0) {
  KV_UNROLL
  for (int b = 0; b < kBlocks; ++b) {
    float factor[2];
    KV_UNROLL
    for (int h = 0; h < 2; ++h) {
      float sum = softmax[b].sum[h];
      sum += shfl_xor(sum, 1);
      sum += shfl_xor(sum, 2);
      const int row = first_row + b * kBlockRows + warp() % 4 * 16 + (lane() >> 2) + 8 * h;
      const float scale = args.value_scale * Plan::V::kUnit * rule.end_row(softmax[b].reference_max[h], sum, work, row);
      factor[h] = sum > 0.f ? div_rn(scale, sum) : sum == 0.f ? 0.f : sum;
    }
    store_output<Plan>(args.out, work, first_row + b * kBlockRows, o[b], factor, q, first_dim);
  }
}

template <class Plan, class Args>
KV_DEVICE void consume(const Args& args) {
  using Stages = kv::Stages<Plan>;
  constexpr int kBlocks = Plan::kBlocks;
  const PostedWork<Plan> works;
  const auto rule = rule_of<Plan>(args);
  using Rule = decltype(rule_of<Plan>(args));
  constexpr bool kChangesScores = Rule::kChangesScores;
  const int group = int(uniform(u32((warp() - Plan::kWarps) / 4))), g = lane() >> 2;
  const SharedAddress q = uniform(Plan::kQueriesAt + u32(group) * Plan::kQueryBytes);
  // Scores that are multiplied by the scales of their tokens are exponents of 2.
  const float unit = Plan::kScalesScores ? 1.f : args.scale_log2 * Plan::K::kUnit;
  open_tensor_order(group);
  constexpr int kSums = Plan::kValueDim / 2, kRowsApart = Plan::kAlternates ? 0 : kBlocks * kBlockRows,
                kStep = Plan::kAlternates ? 2 : 1;
  float o[kBlocks][kSums], s[64];
  u32 p[32];
  RowSoftmax softmax[kBlocks];
  RowExponents<Plan> exponents;
  WorkTile work;
  int n = 0;  // the stage of the present tile
  KV_NO_UNROLL
  for (int round = 0; works.begin(round, work); ++round) {
    int first_row = work.first_row + group * kRowsApart;
    sync_team<4>();  // all warps have left the place of the queries
    load_queries<Plan>(args.q, work, first_row, q);
    publish_operands();
    sync_team<4>();
    exponents.reset();
    bool scales_queries[kBlocks];
    KV_UNROLL
    for (int b = 0; b < kBlocks; ++b) {
      softmax[b].reset();
      scales_queries[b] = QueryFactors<Plan>::are_needed(q, b * kBlockRows + warp() % 4 * 16 + g);
      KV_UNROLL
      for (int i = 0; i < kSums; ++i) o[b][i] = 0.f;
    }
    // Ends the products of a block. Its scores, of the tokens of stage n, become the probabilities p.
    // scales_keys: tokens of stage n have powers of two.
    const auto attend = [&](int b, int tile, [[maybe_unused]] bool is_first, bool scales_keys) {
      RowSoftmax& rows = softmax[b];
      auto factors = score_factors<Plan>(n, unit);
      finish_products(s, group);
      const int row_of_group = b * kBlockRows + warp() % 4 * 16 + g, row = first_row + row_of_group;
      const auto multiply_scores = [&] {
        if (scales_keys) TokenExponents<Plan, false>::scale(s, n);
        if (scales_queries[b]) QueryFactors<Plan>::multiply(s, q, row_of_group);
      };
      multiply_scores();
      const auto apply_rule = [&] { rule.apply(s, work, row, tile, unit); };
      float sums[2];
      if constexpr (Plan::kTracksMaximum) {
        if constexpr (Plan::kScalesScores) factors.multiply(s);
        if (b == kBlocks - 1) Stages::leave(false, n);
        apply_rule();
        UnitFactor factor{kChangesScores ? 1.f : unit};
        if (rows.is_passed(s, factor.unit)) rows.move_reference(s, o[b], factor.unit);
        rows.exponentials(s, sums, factor);
      } else {
        bool moves = is_first;
        if constexpr (Rule::kOpensLate) moves |= rule.applies(work, tile) && rows.has_no_reference();
        KV_NO_UNROLL
        for (; true; moves = true) {
          if constexpr (Plan::kScalesScores)
            if (warp_uniform(moves || rule.applies(work, tile))) factors.multiply(s);
          apply_rule();
          if (warp_uniform(moves)) rows.move_reference(s, o[b], unit);
          rows.exponentials(s, sums, factors);
          if (warp_uniform(moves) || are_halves(sums) || rows.raise_reference(s, sums, o[b])) break;
          multiply_keys_by_mma<Plan::kKeyDim / 16>(s, q + b * kQueryBlockBytes<Plan>, Stages::operand(false, n));
          multiply_scores();
          factors = score_factors<Plan>(n, unit);
        }
        if (b == kBlocks - 1) Stages::leave(false, n);
      }
      TokenExponents<Plan, true>::await(n);
      exponents.fit(s, o[b], rows.sum, n, b, [](auto&, auto&) {});
      KV_UNROLL
      for (int h = 0; h < 2; ++h) rows.sum[h] += sums[h];
      KV_UNROLL
      for (int i = 0; i < 32; ++i) p[i] = pack_f16x2(s[2 * i], s[2 * i + 1]);
      keep_words(p);
      finish_before_barrier(rows.sum[0] + rows.sum[1]);
    };
    // Consumers that alternate have part 0 or 1 of the tiles: each has the same stage of K and V all the time.
    int part = 0;
    if constexpr (kBlocks == 1) {
      const int tiles = work.end_tile - work.first_tile, n_behind = n + tiles;
      if constexpr (Plan::kAlternates) part = (n + group) % 2;
      n += part;
      KV_NO_UNROLL
      for (int tile = work.first_tile + part; tile < work.end_tile; tile += kStep, n += kStep) {
        wait_phase(Stages::full(false, n), Stages::parity(n));
        const bool scales_keys = TokenExponents<Plan, false>::has_some(n);
        await_tensor_order(group);
        multiply_keys<Plan::kKeyDim / 16>(s, q, uniform(Stages::operand(false, n)));
        attend(0, tile, tile < work.first_tile + kStep, scales_keys);
        wait_phase(Stages::full(true, n), Stages::parity(n));
        corrupt_rows<Plan>(rule, o, work, first_row + warp() % 4 * 16 + g, tile, n);
        await_tensor_order(group);
        multiply_values<true>(o[0], p, uniform(Stages::operand(true, n)));
        finish_products(o[0], group);
        keep_words(p);
        Stages::leave(true, n);
      }
      // If the number of tiles is odd, the other consumer has one tile more. This one passes the order of the tensor
      // cores on for both products of that tile.
      if constexpr (Plan::kAlternates)
        for (int i = tiles % 2 == 1 && part == 1 ? 0 : 2; i < 2; ++i) {
          await_tensor_order(group);
          pass_tensor_order(group);
        }
      n = n_behind;
    } else {
      KV_NO_UNROLL
      for (int tile = work.first_tile; tile < work.end_tile; ++tile, ++n) {
        const bool is_first = tile == work.first_tile;
        bool scales_keys = false;
        KV_UNROLL
        for (int b = 0; b < kBlocks; ++b) {
          wait_phase(Stages::full(b > 0, n), Stages::parity(n));
          if (b == 0) scales_keys = TokenExponents<Plan, false>::has_some(n);
          if (b == kBlocks - 1) corrupt_rows<Plan>(rule, o, work, first_row + warp() % 4 * 16 + g, tile, n);
          await_tensor_order(group);
          if (b > 0 || !is_first) {
            float(&before)[kSums] = o[b > 0 ? b - 1 : kBlocks - 1];
            multiply_values<false>(before, p, uniform(Stages::operand(true, b > 0 ? n : n - 1)));
            wgmma_wait<0>();
            settle_sums(before);
            keep_words(p);
          }
          multiply_keys<Plan::kKeyDim / 16>(s, q + b * kQueryBlockBytes<Plan>, uniform(Stages::operand(false, n)));
          if (b == 0 && !is_first) Stages::leave(true, n - 1);
          attend(b, tile, is_first, scales_keys);
        }
      }
      if (work.end_tile > work.first_tile) {
        multiply_values<false>(o[kBlocks - 1], p, uniform(Stages::operand(true, n - 1)));
        wgmma_wait<0>();
        settle_sums(o[kBlocks - 1]);
        keep_words(p);
        Stages::leave(true, n - 1);
      }
    }
    exponents.end(o);
    // The work tile is read again, so that its other members take no registers in the loop over tiles.
    works.recall(int(hide_from_optimizer(u32(round))), work);
    works.leave(round);
    first_row = work.first_row + group * kRowsApart;
    sync_team<4>();  // all warps have left the queries
    if (warp_uniform(is_split<Plan>(work)) && !merge_splits<Plan>(args, work, part, softmax, o)) continue;
    if (!finish_context_chunk<Plan>(args, work, softmax, o)) continue;
    finish_rows<Plan>(args, rule, work, first_row, softmax, o, q);
  }
}

}  // namespace kv
