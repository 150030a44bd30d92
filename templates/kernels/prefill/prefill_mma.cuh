// prefill by mma.sync, for archs without wgmma: the loop of kernels/prefill/prefill.cuh without roles. All eight warps
// of a block copy f16 rows, multiply, and compute the softmax, each for 16 query rows. There is one stage of K and one
// of V, and each is filled while the other is multiplied:
//
//   K of the tile is there     S = Q K^T, then K of the next tile is on its way
//                              softmax
//   V of the tile is there     O += P V, then V of the next tile is on its way
//
// Caches in other formats are dequantized to f16 by the first pass of two (kernels/prefill/context_chunks.cuh).
// SPDX-License-Identifier: MIT
#pragma once
#include "kernels/prefill/consumer.cuh"

namespace kv {

// O += P V of the warp's 16 rows and 128 tokens. p: probabilities in the accumulator layout, which is that of first
// operands, too.
template <int kSums>
KV_DEVICE void multiply_values_by_mma(float (&o)[kSums], const u32 (&p)[32], SharedAddress v) {
  // Lane 8 m + r gives the address of row r, a token, of matrix m: eight tokens and eight dimensions.
  const int row = lane() % 8, matrix = lane() / 8;
  KV_UNROLL
  for (int step = 0; step < 8; ++step) {
    KV_UNROLL
    for (int block = 0; block < kSums / 4; block += 2) {
      u32 b[4];
      load_matrices_transposed(b, operand_chunk(v, step * 16 + matrix % 2 * 8 + row, block + matrix / 2));
      KV_UNROLL
      for (int j = 0; j < 2; ++j) {
        float d[4];
        KV_UNROLL
        for (int i = 0; i < 4; ++i) d[i] = o[(block + j) * 4 + i];
        mma_16x8x16(d, p[4 * step], p[4 * step + 1], p[4 * step + 2], p[4 * step + 3], b[2 * j], b[2 * j + 1]);
        KV_UNROLL
        for (int i = 0; i < 4; ++i) o[(block + j) * 4 + i] = d[i];
      }
    }
  }
}

template <class Plan, class Args>
KV_DEVICE void attend_work_tiles(const Args& args) {
  static_assert(Plan::kCopiesRows && Plan::kTracksMaximum && Plan::kBlocks == 1 && Plan::kStages == 1);
  const auto works = work_tiles_of<Plan>(args);
  const EvenOddOrder order{args.scheduler.blocks};
  const auto rule = rule_of<Plan>(args);
  using Rule = decltype(rule_of<Plan>(args));
  const int group = warp() / 4, stored_from = context_of<Plan>(args).stored_from();
  const SharedAddress q = Plan::kQueriesAt + group * Plan::kQueryBytes, k = Plan::kKeysAt, v = Plan::kValuesAt;
  const float unit = args.scale_log2 * Plan::K::kUnit;
  float o[1][Plan::kValueDim / 2], s[64];
  u32 p[32];
  RowSoftmax softmax[1];
  RowExponents<Plan> exponents;
  WorkTile work;
  // Behind the last tile there are no copies.
  const auto copy_keys = [&](int tile) {
    if (tile < work.end_tile) {
      copy_rows<Plan, typename Plan::K>(k, args.k, work, tile, stored_from);
      StoredExponents<Plan, false>::copy(args.k, work, tile, tile, stored_from);
    }
    copy_commit();
  };
  const auto copy_values = [&](int tile) {
    if (tile < work.end_tile) {
      copy_rows<Plan, typename Plan::V>(v, args.v, work, tile, stored_from);
      StoredExponents<Plan, true>::copy(args.v, work, tile, tile, stored_from);
    }
    copy_commit();
  };
  KV_NO_UNROLL
  for (int round = 0; works.at(order.place(works, round), work); ++round) {
    int first_row = work.first_row + group * kBlockRows;
    sync_block();  // all warps have left the place of the queries
    copy_keys(work.first_tile);
    copy_values(work.first_tile);
    load_queries<Plan>(args.q, work, first_row, q);
    softmax[0].reset();
    exponents.reset();
    bool scales_queries = false;
    KV_UNROLL
    for (int i = 0; i < Plan::kValueDim / 2; ++i) o[0][i] = 0.f;
    KV_NO_UNROLL
    for (int tile = work.first_tile; tile < work.end_tile; ++tile) {
      copy_wait<1>();
      sync_block();
      multiply_keys_by_mma<Plan::kKeyDim / 16>(s, q, k);
      sync_block();
      copy_keys(tile + 1);
      if (tile == work.first_tile)
        scales_queries = QueryFactors<Plan>::are_needed(q, warp() % 4 * 16 + (lane() >> 2));
      if (TokenExponents<Plan, false>::has_some(tile)) TokenExponents<Plan, false>::scale(s, tile);
      if (scales_queries) QueryFactors<Plan>::multiply(s, q, warp() % 4 * 16 + (lane() >> 2));
      rule.apply(s, work, first_row + warp() % 4 * 16 + (lane() >> 2), tile, unit);
      UnitFactor factor{Rule::kChangesScores ? 1.f : unit};
      if (softmax[0].is_passed(s, factor.unit)) softmax[0].move_reference(s, o[0], factor.unit);
      float sums[2];
      softmax[0].exponentials(s, sums, factor);
      if constexpr (TokenExponents<Plan, true>::kHas) {
        copy_wait<1>();
        sync_block();  // the exponents of V are there
        exponents.fit(s, o[0], softmax[0].sum, tile, 0, [](auto&, auto&) {});
      }
      KV_UNROLL
      for (int h = 0; h < 2; ++h) softmax[0].sum[h] += sums[h];
      KV_UNROLL
      for (int i = 0; i < 32; ++i) p[i] = pack_f16x2(s[2 * i], s[2 * i + 1]);
      copy_wait<1>();
      clear_values<Plan>(work, tile, 0, warp() * Plan::kTile);
      sync_block();
      corrupt_rows<Plan>(rule, o, work, first_row + warp() % 4 * 16 + (lane() >> 2), tile, 0);
      multiply_values_by_mma(o[0], p, v);
      sync_block();
      copy_values(tile + 1);
    }
    exponents.end(o);
    // The work tile is computed again, so that its other members take no registers in the loop over tiles.
    works.at(order.place(works, int(hide_from_optimizer(u32(round)))), work);
    first_row = work.first_row + group * kBlockRows;
    sync_block();  // all warps have left the queries
    if (warp_uniform(is_split<Plan>(work)) && !merge_splits<Plan>(args, work, 0, softmax, o)) continue;
    if (!finish_context_chunk<Plan>(args, work, softmax, o)) continue;
    finish_rows<Plan>(args, rule, work, first_row, softmax, o, q);
  }
  copy_wait<0>();
}

}  // namespace kv
