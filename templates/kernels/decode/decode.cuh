// decode: attention of a few query rows (GQA group x query length) over a long packed cache, in one launch. The tiles
// of all sequences and heads are shared evenly among the blocks (kernels/decode/tile_scheduler.cuh); a block takes its
// parts of (sequence, head) pairs one after the other: queries in (rotated where K is), tiles through a ring per warp,
// then the warps, and the parts of a pair, become rows of output (decode_merge), rotated back where V is.
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
// (decode_values). No block barrier stands in the loop. For many queries a team of warps takes its tiles together
// (decode_team). A row may have several sections: outlier channels with wider codes, signs of a residual; each brings
// its share of the inner dimension.
// SPDX-License-Identifier: MIT
#pragma once
#include "args/attention.cuh"
#include "kernels/decode/query_fragments.cuh"
#include "kernels/decode/stage_tile.cuh"
#include "kernels/decode/tile_scheduler.cuh"
#include "kernels/decode/scores.cuh"
#include "kernels/decode/split_merge.cuh"
#include "kernels/decode/softmax.cuh"
#include "kernels/decode/values.cuh"

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

// One side of the cache at a part's sequence and head: where a warp's next tile comes from.
template <class Plan, class Side>
struct Tiles {
  static constexpr int kTile = Plan::kTile, kWarps = Plan::kWarps;
  const u8* first_row;  // of the pair
  i64 token_stride;
  const u8 *codes, *scales;  // of layout planar: from the lane's 16 bytes on
  bool is_aligned;           // whole tiles can take the straight-line copies

  KV_DEVICE Tiles(const CacheSide& side, const Part& part, int tile)
      : first_row(side.codes + part.sequence * side.codes_sequence_stride +
                  Turn<Plan>(part.head).head * side.codes_head_stride),
        token_stride(Side::kIsPlanar ? Side::kRowBytes : side.codes_token_stride),
        codes(in_register(first_row + tile * tile_bytes() + (Side::kIsPlanar ? lane() * 16 : 0))),
        scales(in_register(side.scales + part.sequence * side.scales_sequence_stride +
                           Turn<Plan>(part.head).head * side.scales_head_stride +
                           i64(tile) * (kTile * Side::kScaleRowBytes) + lane() * 16)),
        is_aligned(kv::is_aligned<Side>(codes, token_stride)) {}

  template <bool kIsWhole>
  KV_DEVICE void stage(SharedAddress to, int valid) const {
    stage_tile<Side, kTile, kIsWhole>(to, token_stride, codes, scales, valid);
  }
  KV_DEVICE void advance() {
    // One sum for all copies; else the compiler has one for each way around them, and copies of it.
    codes = in_register(codes + kWarps * tile_bytes());
    scales = in_register(scales + kWarps * kTile * Side::kScaleRowBytes);
  }

 private:
  KV_DEVICE i64 tile_bytes() const { return Side::kIsPlanar ? kTile * Side::kRowBytes : kTile * token_stride; }
};

// One staged tile. scale: of scores, times the units of K and of the queries.
template <class Plan, class Features>
KV_DEVICE void take_tile(Sums<Plan>& sums, SharedAddress stage, const Queries<Plan>& queries, const Features& features,
                         float scale, int token, int length, const u8* k_codes, i64 k_stride, const u8* v_codes,
                         i64 v_stride) {
  using K = typename Plan::K;
  using V = typename Plan::V;
  constexpr int kSubtiles = Plan::kSubtiles, kTokens = kSubtiles * 16;
  const Table table = table_of_lane<K::kTableCopies>();
  KV_NO_UNROLL
  for (int first = 0; first < Plan::kTile; first += kTokens) {
    u32 k_skew[kSubtiles][2], v_skew[kSubtiles][4], p[kSubtiles][Plan::kColumnBlocks][2];
    key_skews<K>(k_skew, k_codes, k_stride);
    value_skews<V>(v_skew, v_codes, v_stride);
    Scores<Plan> x[kSubtiles];
    typename Features::Loaded loaded;
    features.load(loaded, token + first);
    score<Plan>(x, stage, first, k_skew, queries, table, scale, sums.softmax);
    features.apply(x, loaded, token + first, sums.softmax);
    if (token + first + kTokens > length || features.cuts(token + first, token + first + kTokens - 1))
      mask_scores<Plan>(x, features, token + first, length);
    bool needs_renewal = largest_bits<Plan>(x) >= sums.softmax.renews_at;
    if (Plan::Feature::template skips_values<Plan>(x, needs_renewal)) {
      exponentiate<Plan>(p, x, sums.softmax);  // into the denominator
      continue;
    }
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

// Where a head does not fill the lanes of a warp, zeros stand behind each staged row of K: what queries lack must not
// meet a NaN.
template <class Plan>
KV_DEVICE void clear_pads(SharedAddress ring) {
  using K = typename Plan::K;
  constexpr int kWords = K::kPadBytes / 4;
  KV_NO_UNROLL
  for (int stage = 0; stage < Plan::kStages; ++stage, ring += Plan::kWarps * Plan::kStageBytes) KV_NO_UNROLL
  for (int i = lane(); i < Plan::kTile * kWords; i += 32)
    store_shared_u32(ring + i / kWords * K::kPitch + K::kRowBytes + i % kWords * 4, 0);
}

template <class Plan, class Args, class Work>
KV_DEVICE void attend_part(const Args& args, Work& work, Part& part) {
  using K = typename Plan::K;
  using V = typename Plan::V;
  constexpr int kTile = Plan::kTile, kStages = Plan::kStages;
  work.put_away(Plan::kLineAt, part);
  // Queries are asked for first: behind a ring that is being filled they would wait for all of it.
  QueryRows<Plan> rows;
  rows.load(args, part.sequence, Turn<Plan>(part.head));
  const auto features = features_of<Plan>(args, part);

  int tile = part.first + warp();
  Tiles<Plan, K> k(args.k, part, tile);
  Tiles<Plan, V> v(args.v, part, tile);
  const int last = int(kept(part.last));
  const int whole = int(kept(k.is_aligned && v.is_aligned ? u32(part.length) / kTile : 0));
  // Of a team that takes its last tiles, all are staged: the output is added up over them without asking which there
  // are.
  const int staged_end =
      Plan::kTeam > 1 ? int(kept(last + (Plan::kTeam - 1 - (last - part.first - 1) % Plan::kTeam))) : last;
  const auto stage = [&](int tile, SharedAddress to) {
    if (tile < staged_end) {
      if (tile < whole) {
        k.template stage<true>(to, kTile);
        v.template stage<true>(to + K::kStageBytes, kTile);
      } else {
        const int valid = clamp_to(part.length - tile * kTile, kTile);
        k.template stage<false>(to, valid);
        v.template stage<false>(to + K::kStageBytes, valid);
      }
    }
    copy_commit();
    k.advance(), v.advance();
  };
  constexpr int kSlot = Plan::kWarps * Plan::kStageBytes;  // one stage of every warp
  const SharedAddress ring = kept(Plan::kRingAt + warp() * Plan::kStageBytes), ring_last = ring + (kStages - 1) * kSlot;
  if constexpr (K::kPadBytes > 0) clear_pads<Plan>(ring);
  KV_NO_UNROLL
  for (SharedAddress to = ring; to != ring_last; to += kSlot, tile += Plan::kWarps) stage(tile, to);

  const float query_unit = rows.store();
  Queries<Plan> queries;
  queries.hold();
  const float scale = args.scale_log2 * K::kUnit * query_unit;

  Sums<Plan> sums;
  sums.softmax.reset();
  if constexpr (Plan::kTeam > 1) {
    typename Plan::Team tiles{tile - (kStages - 1) * Plan::kWarps,
                              last,
                              part.length,
                              k.first_row,
                              k.token_stride,
                              v.first_row,
                              v.token_stride};
    tiles.attend(sums, queries, features, scale, stage);
  } else {
    SharedAddress taken = ring, filled = ring_last;
    constexpr int kAhead = (kStages - 1) * Plan::kWarps;
    KV_NO_UNROLL
    for (; tile < last + kAhead; tile += Plan::kWarps) {
      copy_wait<kStages - 2>();
      sync_warp();  // every lane's copies of this tile have landed, and every lane is done with the stage that is
                    // filled now
      stage(tile, filled);
      take_tile<Plan>(sums, taken, queries, features, scale, (tile - kAhead) * kTile, part.length, k.first_row,
                      k.token_stride, v.first_row, v.token_stride);
      filled = taken;
      taken = taken == ring_last ? ring : taken + kSlot;
    }
  }

  KV_UNROLL
  for (int i = 0; i < 2 * Plan::kColumnBlocks; ++i) {
    float& sum = sums.softmax.sum[i / 2][i % 2];
    KV_UNROLL
    for (int mask = 4; mask < 32; mask <<= 1) sum += shfl_xor(sum, mask);
  }
  const float unit = args.value_scale * V::kUnit * (V::kScalesGroups ? exp2_fast(float(sums.value_scales.log2)) : 1.f);
  part = work.fetch(Plan::kLineAt);
  finish_part<Plan>(args, work, part, sums.o, sums.softmax, unit);
}

// The first tiles of a part on their way to the second-level cache, while the launch ahead still runs: what it writes
// there is seen.
template <class Plan, class Side>
KV_DEVICE void prefetch_side(const CacheSide& side, const Part& part) {
  constexpr int kLine = 128, kMost = Plan::kWarps * Plan::kStages;
  if constexpr (Side::kIsPlanar) {
    const int first = part.first * Plan::kTile,
              last = (part.last < part.first + kMost ? part.last : part.first + kMost) * Plan::kTile;
    const int bytes = ((last < part.length ? last : part.length) - first) * Side::kRowBytes;
    const u8* const codes = side.codes + part.sequence * side.codes_sequence_stride +
                            Turn<Plan>(part.head).head * side.codes_head_stride + i64(first) * Side::kRowBytes;
    KV_NO_UNROLL
    for (int at = thread() * kLine; at < bytes; at += Plan::kThreads * kLine) prefetch_line(codes + at);
  }
}

// Stores the newest tokens, where a call brings them (kernels/decode/append.cuh): not this one.
template <class Plan>
KV_DEVICE void append(const AttentionArgs&, const Part&) {}

template <class Plan, class Args>
KV_DEVICE void decode(const Args& args) {
  using K = typename Plan::K;
  using V = typename Plan::V;
  static_assert(K::kDim == Plan::kKeyDim && V::kDim == Plan::kValueDim, "sections must cover the row");
  fill_tables<K>();
  fill_tables<V>();
  fill_order<Plan>();
  release_successor();  // it waits for all of this launch, but may be set up while the last blocks merge
  auto work = work_of<Plan>(args);
  static_assert(Plan::kLineAt + decltype(work)::kBytes <= Plan::kOrderAt, "what is put away fits");
  if (!may_look_early<Plan>(args)) wait_for_predecessor();
  u32 begin, end;
  Part part;
  KV_NO_UNROLL
  do {  // by lengths that the launch ahead may yet change
    work.look();
    begin = work.begin(block_x()), end = work.begin(block_x() + 1);
    part = Part{};
    if (agreed(begin < end)) part = work.part_at(begin, end);
    prefetch_side<Plan, K>(args.k, part);
    prefetch_side<Plan, V>(args.v, part);
    wait_for_predecessor();  // from here on, what it wrote may be read
  } while (agreed(work.has_changed()));
  if (!agreed(begin < end)) return;
  KV_NO_UNROLL
  while (true) {
    append<Plan>(args, part);
    attend_part<Plan>(args, work, part);
    end = work.begin(block_x() + 1);  // as it was: kept in no register meanwhile
    if (!agreed(part.line_end < end)) return;
    sync_block();  // shared memory is used anew
    part = work.next(part, end);
  }
}

}  // namespace kv
