// decode: attention of a few query rows (GQA group x query length) over a long packed cache, in one launch. The tiles of all
// sequences and heads are shared evenly among the blocks (core/work.cuh); a block takes its parts of (sequence, head) pairs one after
// the other: queries in (rotated where K is), tiles through a ring per warp, then the warps, and the parts of a pair, become rows of
// output (decode_merge), rotated back where V is.
//
// Operands are swapped: the cache is the A operand of the tensor cores and queries are the eight columns of B, so
// packed K and V go from staged bytes to fragments in registers and never exist as an fp16 tile.
//
//   S^T [16 tokens x 8 queries] = K [16 tokens x head_dim] Q^T       pairs (or fours, of integers) run along head_dim, in the
//                                                                    order that the packing gives; Q is gathered in that order
//   O^T [head_dim x 8 queries] += V^T [head_dim x 16 tokens] P^T     pairs run along tokens; rows of O come out in the
//                                                                    packing's order, put right when they are written
//
// A warp works alone on 16 or 32 tokens at a time: stage, score (decode_keys), soften (decode_softmax), accumulate
// (decode_values). No block barrier stands in the loop. For many queries a team of warps takes its tiles together (decode_team). A
// row may have several sections: outlier channels with wider codes, signs of a residual; each brings its share of the inner dimension.
// SPDX-License-Identifier: MIT
#pragma once
#include "core/args.cuh"
#include "core/queries.cuh"
#include "core/stage.cuh"
#include "core/work.cuh"
#include "kernels/decode_keys.cuh"
#include "kernels/decode_merge.cuh"
#include "kernels/decode_softmax.cuh"
#include "kernels/decode_values.cuh"

namespace kv {

template <class Section>
KV_DEVICE void fill_table() {
  using Pairs = typename Section::Pairs;
  constexpr int kWords = Section::kTableCopies > Pairs::kEntryWords ? Section::kTableCopies : Pairs::kEntryWords;
  if constexpr (kWords % 4 == 0) {
    KV_NO_UNROLL
    for (int i = thread(); i < Pairs::kEntries * (kWords / 4); i += Section::kThreads) {
      const int at = i / (kWords / 4);
      const u32 first = Pairs::entry(at, 0), second = Pairs::kEntryWords == 2 ? Pairs::entry(at, 1) : first;
      store_shared_u128(Section::kTableAt + at * Section::kTableStride + i % (kWords / 4) * 16, first, second, first,
                        second);
    }
  } else {
    KV_NO_UNROLL
    for (int i = thread(); i < Pairs::kEntries * kWords; i += Section::kThreads)
      store_shared_u32(Section::kTableAt + i / kWords * Section::kTableStride + i % kWords * 4,
                       Pairs::entry(i / kWords, i % Pairs::kEntryWords));
  }
}
template <class Side>
KV_DEVICE void fill_tables() {
  for_each(typename Side::Sections{}, [](auto section) {
    if constexpr (decltype(section)::kOwnsTable) fill_table<decltype(section)>();
  });
}

// The order of O's elements to shared memory, where lanes ask for different ones at once; and K's table of integers.
template <class Plan>
KV_DEVICE void fill_order() {
  IntegerTable<typename Plan::KeyCodes>::fill(Plan::kIntegerTableAt);
  KV_NO_UNROLL
  for (int i = thread(); i < Plan::kValueDim; i += Plan::kThreads)
    store_shared_u16(Plan::kOrderAt + i * 2, Plan::value_order(i));
}

// One side of the cache at a part's sequence and head: where its tiles come from.
template <class Side, int kTile>
struct Tiles {
  const u8 *codes, *scales;  // of layout planar: from the lane's 16 bytes on
  i64 token_stride;
  bool is_aligned;  // whole tiles can take the straight-line copies

  KV_DEVICE Tiles(const CacheSide& side, const Part& part)
      : codes(in_register(side.codes + part.sequence * side.codes_sequence_stride + part.head * side.codes_head_stride +
                          (Side::kIsPlanar ? lane() * 16 : 0))),
        scales(in_register(side.scales + part.sequence * side.scales_sequence_stride +
                           part.head * side.scales_head_stride + lane() * 16)),
        token_stride(Side::kIsPlanar ? Side::kRowBytes : side.codes_token_stride),
        is_aligned(kv::is_aligned<Side>(codes, token_stride)) {}

  template <bool kIsWhole>
  KV_DEVICE void stage(SharedAddress to, int tile, int valid) const {
    const i64 codes_at = Side::kIsPlanar ? i64(tile) * (kTile * Side::kRowBytes) : tile * (kTile * token_stride);
    stage_tile<Side, kTile, kIsWhole>(to, token_stride, codes + codes_at,
                                      scales + i64(tile) * (kTile * Side::kScaleRowBytes), valid);
  }
};

// One staged tile. scale: of scores, times the units of K and of the queries.
template <class Plan>
KV_DEVICE void take_tile(Sums<Plan>& sums, SharedAddress stage, const Queries<Plan>& queries, float scale, int token,
                         int length, const u8* k_codes, i64 k_stride, const u8* v_codes, i64 v_stride) {
  using K = typename Plan::K;
  using V = typename Plan::V;
  constexpr int kSubtiles = Plan::kSubtiles, kTokens = kSubtiles * 16;
  const int g = lane() >> 2, c = lane() & 3;
  const Table table = table_of_lane<K::kTableCopies>();
  KV_NO_UNROLL
  for (int first = 0; first < Plan::kTile; first += kTokens) {
    u32 k_skew[kSubtiles][2], v_skew[kSubtiles][4], p[kSubtiles][Plan::kColumnBlocks][2];
    KV_UNROLL
    for (int i = 0; i < kSubtiles * 2; ++i)
      k_skew[i / 2][i % 2] = row_skew<K>(k_codes, k_stride, token + first + i / 2 * 16 + g + i % 2 * 8);
    KV_UNROLL
    for (int i = 0; i < kSubtiles * 4; ++i)
      v_skew[i / 4][i % 4] = row_skew<V>(v_codes, v_stride, token + first + i / 4 * 16 + 2 * c + i % 2 + i % 4 / 2 * 8);
    Scores<Plan> x[kSubtiles];
    score<Plan>(x, stage, first, k_skew, queries, table, scale, sums.softmax);
    if (token + first + kTokens > length || Plan::Feature::cuts(token + first + kTokens - 1, length))
      mask_scores<Plan>(x, token + first, length);
    bool needs_renewal = sums.softmax.unseen != 0 || largest_bits<Plan>(x) > int(bits_of(kLimit));
    if constexpr (V::kScalesGroups) {
      sums.value_scales.load(stage + K::kStageBytes, first, v_skew, table);
      needs_renewal |= !sums.value_scales.fit();
    }
    if (any(needs_renewal)) {
      renew_base<Plan>(x, sums.softmax, sums.o);
      if constexpr (V::kScalesGroups) sums.value_scales.renew(sums.o);
    }
    exponentiate<Plan>(p, x, sums.softmax);
    for_each(typename V::Sections{}, [&](auto section) {
      accumulate_section<Plan, decltype(section)>(sums.o, sums.value_scales, p, stage + K::kStageBytes, first, v_skew,
                                                  table);
    });
  }
}

template <class Plan>
KV_DEVICE void attend_part(const AttentionArgs& args, const Work<Plan::kTile>& work, const Part& part) {
  using K = typename Plan::K;
  using V = typename Plan::V;
  constexpr int kTile = Plan::kTile, kStages = Plan::kStages;
  // Queries are asked for first: behind a ring that is being filled they would wait for all of it.
  QueryRows<Plan> rows;
  rows.load(args, part.sequence, part.head);

  const Tiles<K, kTile> k(args.k, part);
  const Tiles<V, kTile> v(args.v, part);
  const auto stage_at = [](int slot) {
    return SharedAddress(Plan::kRingAt + (slot * Plan::kWarps + warp()) * Plan::kStageBytes);
  };
  // Of a team that takes its last tiles, all are staged: the output is added up over them without asking which there are.
  const int staged_end = part.last + (Plan::kTeam - 1 - (part.last - part.first - 1) % Plan::kTeam);
  const auto stage = [&](int tile, int slot) {
    const int valid = part.length - tile * kTile;
    if (tile < staged_end) {
      if (valid >= kTile && k.is_aligned && v.is_aligned) {
        k.template stage<true>(stage_at(slot), tile, kTile);
        v.template stage<true>(stage_at(slot) + K::kStageBytes, tile, kTile);
      } else {
        k.template stage<false>(stage_at(slot), tile, clamp_to(valid, kTile));
        v.template stage<false>(stage_at(slot) + K::kStageBytes, tile, clamp_to(valid, kTile));
      }
    }
    copy_commit();
  };
  int tile = part.first + warp(), slot = 0;
  KV_NO_UNROLL
  for (; slot < kStages - 1; ++slot) stage(tile + slot * Plan::kWarps, slot);

  const float query_unit = rows.store();
  Queries<Plan> queries;
  queries.hold();
  const float scale = args.scale_log2 * K::kUnit * query_unit;

  Sums<Plan> sums;
  sums.softmax.reset();
  if constexpr (Plan::kTeam > 1) {
    typename Plan::Team tiles{tile, part.last, part.length, k.codes, k.token_stride, v.codes, v.token_stride};
    tiles.attend(sums, queries, scale, stage);
  } else {
    int taken = 0;
    KV_NO_UNROLL
    for (; tile < part.last; tile += Plan::kWarps) {
      sync_warp();  // every lane is done with the stage that is filled now
      stage(tile + (kStages - 1) * Plan::kWarps, slot);
      slot = slot + 1 == kStages ? 0 : slot + 1;
      copy_wait<kStages - 1>();
      sync_warp();  // every lane's copies of this tile have landed
      take_tile<Plan>(sums, stage_at(taken), queries, scale, tile * kTile, part.length, k.codes, k.token_stride,
                      v.codes, v.token_stride);
      taken = taken + 1 == kStages ? 0 : taken + 1;
    }
  }
  copy_wait<0>();

  KV_UNROLL
  for (int i = 0; i < 2 * Plan::kColumnBlocks; ++i) {
    float& sum = sums.softmax.sum[i / 2][i % 2];
    KV_UNROLL
    for (int mask = 4; mask < 32; mask <<= 1) sum += shfl_xor(sum, mask);
  }
  const float unit = args.value_scale * V::kUnit * (V::kScalesGroups ? exp2_fast(float(sums.value_scales.log2)) : 1.f);
  finish_part<Plan>(args, work, part, sums.o, sums.softmax, unit);
}

// The first tiles of a part on their way to the second-level cache, while the launch ahead still runs: what it writes there is seen.
template <class Plan, class Side>
KV_DEVICE void prefetch_side(const CacheSide& side, const Part& part) {
  constexpr int kLine = 128, kMost = Plan::kWarps * Plan::kStages;
  if constexpr (Side::kIsPlanar) {
    const int last = part.last - part.first < kMost ? part.last : part.first + kMost;
    const i64 end = i64(last * Plan::kTile < part.length ? last * Plan::kTile : part.length) * Side::kRowBytes;
    const u8* const codes =
        side.codes + part.sequence * side.codes_sequence_stride + part.head * side.codes_head_stride;
    KV_NO_UNROLL
    for (i64 at = i64(part.first) * (Plan::kTile * Side::kRowBytes) + thread() * kLine; at < end;
         at += Plan::kThreads * kLine)
      prefetch_line(codes + at);
  }
}

template <class Plan>
KV_DEVICE void decode(const AttentionArgs& args) {
  using K = typename Plan::K;
  using V = typename Plan::V;
  static_assert(K::kDim == Plan::kKeyDim && V::kDim == Plan::kValueDim, "sections must cover the row");
  check_shared();
  fill_tables<K>();
  fill_tables<V>();
  fill_order<Plan>();
  release_successor();  // it waits for all of this launch, but may be set up while the last blocks merge
  if (!args.work.lengths) {
    const Work<Plan::kTile> work(args.work);
    const Part part = work.part_at(work.begin(block_x()), work.begin(block_x() + 1));
    prefetch_side<Plan, K>(args.k, part);
    prefetch_side<Plan, V>(args.v, part);
  }
  wait_for_predecessor();  // from here on, what it wrote may be read
  const Work<Plan::kTile> work(args.work);
  const u32 end = work.begin(block_x() + 1);
  KV_NO_UNROLL
  for (u32 at = work.begin(block_x()); at < end;) {
    const Part part = work.part_at(at, end);
    attend_part<Plan>(args, work, part);
    at += u32(part.last - part.first);
    if (at < end) sync_block();  // shared memory is used anew
  }
}

}  // namespace kv
