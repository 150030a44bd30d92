// prefill of heads of more than 256 dimensions of V, as MLA has them (576 of K, 512 of V). The sums of 64 rows and 512
// dimensions are more than a warpgroup has registers for, so the two consumers share the 64 query rows of a work tile:
//
//   S [64 rows x 32 tokens]   = Q K^T    each consumer has half of the tile's 64 tokens, and all dimensions
//   maximum of each row                  of its own tokens, then of both, by shared memory
//   P [64 rows x 64 tokens]              half from each, as an operand in shared memory
//   O [64 rows x 256]         += P V     each consumer has half of the dimensions, and all tokens
//
// There is one stage of K and one of V: one is filled while the other is multiplied. Rows are f16, so every other
// format takes two passes (kernels/prefill/context_chunks.cuh).
// SPDX-License-Identifier: MIT
#pragma once
#include "kernels/prefill/consumer.cuh"

namespace kv {

// Exchange passes maxima and probabilities from one consumer to the other. All warps of both consumers meet twice for a
// tile, and twice at either end of a work tile: first at barrier 0, then at barrier 1. A warp stores maxima or
// probabilities of the next tile behind a barrier that all warps reach when they have left these.
template <class Plan>
struct Exchange {
  static constexpr SharedAddress kMaxima = Plan::kExchangeAt,  // [consumer][row] of a tile
      kBarriers = kMaxima + 2 * kBlockRows * 4;
  KV_DEVICE static void open() {
    for (int i = 0; i < 2; ++i) open_barrier(kBarriers + 8 * i, Plan::kConsumerWarps);
  }
  // Waits until all warps have come to this barrier. meetings: how often they met there before.
  KV_DEVICE static void meet(int barrier, int meetings) {
    sync_warp();
    if (lane() == 0) arrive(kBarriers + 8 * barrier);
    wait_phase(kBarriers + 8 * barrier, u32(meetings) % 2);
  }
  KV_DEVICE static SharedAddress maximum(int group, int row) { return kMaxima + (group * kBlockRows + row) * 4; }
  // Between the two meetings of a tile: the larger of what both consumers have of a row, and whether one of them has a
  // denominator that is not zero. Two more meetings.
  KV_DEVICE static void combine(float (&most)[2], float (&denominators)[2], int group, int row, int& meetings) {
    meet(1, meetings++);  // all have read the maxima
    if ((lane() & 3) == 0) {
      KV_UNROLL
      for (int h = 0; h < 2; ++h)
        store_shared_u32(maximum(group, row + 8 * h), bits_of(most[h]) | (denominators[h] != 0.f ? 1u << 31 : 0u));
    }
    meet(0, meetings);
    KV_UNROLL
    for (int h = 0; h < 2; ++h) {
      const u32 other = load_staged_u32(maximum(1 - group, row + 8 * h));
      most[h] = larger(most[h], float_of(other & 0x7fffffffu));
      denominators[h] += float(other >> 31);
    }
  }
};

template <class Plan, class Args>
KV_DEVICE void consume_shared_rows(const Args& args) {
  using Stages = kv::Stages<Plan>;
  using Exchange = kv::Exchange<Plan>;
  constexpr int kScores = Plan::kTokens / 4, kSums = Plan::kValueDim / 4;
  static_assert(kScores == 16 && kSums == 128);
  const PostedWork<Plan> works;
  const auto rule = rule_of<Plan>(args);
  constexpr bool kChangesScores = decltype(rule_of<Plan>(args))::kChangesScores;
  const int group = int(uniform(u32((warp() - Plan::kWarps) / 4))), g = lane() >> 2, c = lane() & 3,
            row_of_block = warp() % 4 * 16 + g;
  const SharedAddress q = Plan::kQueriesAt, p = Plan::kProbabilitiesAt;
  const float unit = args.scale_log2 * Plan::K::kUnit;
  float o[1][kSums], s[kScores];
  RowSoftmax softmax[1];
  RowSoftmax& rows = softmax[0];
  RowExponents<Plan> exponents;
  WorkTile work;
  int n = 0;         // tiles before the present one
  int meetings = 0;  // at each barrier, before the next one
  KV_NO_UNROLL
  for (int round = 0; works.begin(round, work); ++round, ++meetings) {
    Exchange::meet(0, meetings);  // both have left the output of the work tile before
    load_queries<Plan>(args.q, work, work.first_row, q);
    publish_operands();
    Exchange::meet(1, meetings++);
    rows.reset();
    exponents.reset();
    const bool scales_queries = QueryFactors<Plan>::are_needed(q, row_of_block);
    KV_UNROLL
    for (int i = 0; i < kSums; ++i) o[0][i] = 0.f;
    KV_NO_UNROLL
    for (int tile = work.first_tile; tile < work.end_tile; ++tile, ++n, ++meetings) {
      wait_phase(Stages::full(false, n), Stages::parity(n));
      wgmma_begin();
      const SharedAddress keys = uniform(Stages::operand(false, n)) + group * (Plan::kTokens / 2 * 128);
      wgmma_64x32x16<false>(s, q, keys, 0);
      KV_UNROLL
      for (int step = 1; step < Plan::kKeyDim / 16; ++step) wgmma_64x32x16<true>(s, q, keys, step);
      wgmma_commit();
      wgmma_wait<0>();
      settle_sums(s);
      Stages::leave(false, n);
      if (TokenExponents<Plan, false>::has_some(n)) TokenExponents<Plan, false>::scale(s, n);
      if (scales_queries) QueryFactors<Plan>::multiply(s, q, row_of_block);
      rule.apply(s, work, work.first_row + row_of_block, tile, unit);
      UnitFactor factor{kChangesScores ? 1.f : unit};
      float most[2], sums[2];
      RowSoftmax::largest_of_rows(s, factor.unit, most);
      if (c == 0) {
        KV_UNROLL
        for (int h = 0; h < 2; ++h) store_shared_u32(Exchange::maximum(group, row_of_block + 8 * h), bits_of(most[h]));
      }
      Exchange::meet(0, meetings);
      KV_UNROLL
      for (int h = 0; h < 2; ++h)
        most[h] = larger(most[h], float_of(load_staged_u32(Exchange::maximum(1 - group, row_of_block + 8 * h))));
      if (rows.is_passed_by(most)) rows.raise_to(most, o[0]);
      rows.exponentials(s, sums, factor);
      TokenExponents<Plan, true>::await(n);
      exponents.fit(s, o[0], rows.sum, n, 0, [&](float(&products)[2], float(&denominators)[2]) {
        Exchange::combine(products, denominators, group, row_of_block, meetings);
      });
      KV_UNROLL
      for (int h = 0; h < 2; ++h) rows.sum[h] += sums[h];
      KV_UNROLL
      for (int i = 0; i < kScores; i += 2)
        store_shared_u32(p + row_operand_place(row_of_block + i / 2 % 2 * 8, group * 4 + i / 4) + 4 * c,
                         pack_f16x2(s[i], s[i + 1]));
      publish_operands();
      Exchange::meet(1, meetings);
      wait_phase(Stages::full(true, n), Stages::parity(n));
      wgmma_begin();
      const SharedAddress values = uniform(Stages::operand(true, n)) + group * (kSums * 2 / 64 * Stages::kPanel);
      KV_UNROLL
      for (int step = 0; step < Plan::kTokens / 16; ++step) wgmma_64x256x16_transposed(o[0], p, values, step);
      wgmma_commit();
      wgmma_wait<0>();
      settle_sums(o[0]);
      corrupt_rows<Plan>(rule, o, work, work.first_row + row_of_block, tile, n);
      Stages::leave(true, n);
    }
    exponents.end(o);
    // The work tile is read again, so that its other members take no registers in the loop over tiles.
    works.recall(int(hide_from_optimizer(u32(round))), work);
    works.leave(round);
    // The denominators of both halves of the tokens, by the place of the probabilities, which both have left.
    Exchange::meet(0, meetings);
    const SharedAddress sums = p + (row_of_block * 4 + c) * 16;  // of both consumers' lanes that have these rows
    store_shared_u64(sums + group * 8, bits_of(rows.sum[0]), bits_of(rows.sum[1]));
    Exchange::meet(1, meetings);
    KV_UNROLL
    for (int h = 0; h < 2; ++h)
      rows.sum[h] = float_of(load_staged_u32(sums + h * 4)) + float_of(load_staged_u32(sums + 8 + h * 4));
    if (warp_uniform(is_split<Plan>(work)) && !merge_splits<Plan>(args, work, 0, softmax, o)) continue;
    if (!finish_context_chunk<Plan>(args, work, softmax, o)) continue;
    finish_rows<Plan>(args, rule, work, work.first_row, softmax, o, q + group * Plan::kQueryBytes, group * kSums * 2);
  }
}

template <class Plan, class Args>
KV_DEVICE void attend_work_tiles(const Args& args) {
  static_assert(Plan::kCopiesRows && Plan::kTracksMaximum && Plan::kBlocks == 1 && Plan::kStages == 1);
  if (thread() == 0) {
    PostedWork<Plan>::open();
    Exchange<Plan>::open();
    Stages<Plan>::open();
  }
  sync_block();
  if (warp() < Plan::kWarps) {
    release_registers<Plan::kProducerRegisters>();
    produce_f16<Plan>(args);
  } else {
    request_registers<Plan::kConsumerRegisters>();
    consume_shared_rows<Plan>(args);
  }
}

}  // namespace kv
