// decode: attention of a few query rows (GQA group x query length) over a long packed cache, in one launch: split-KV,
// online softmax, a fused merge. The tile scheduler (kernels/decode/tile_scheduler.cuh) gives each block its KV splits
// of batch-heads. The block takes them one after the other: it loads the queries (rotated if K is), stages tiles
// through a ring of stages for each warp, and merges its warps, and the splits of the batch-head, to rows of output
// (split_merge.cuh), which are rotated back if V is.
//
// Operands are swapped: the cache is the A operand of the tensor cores and query rows are the eight columns of B, so
// packed K and V go from staged bytes to fragments in registers and never exist as an fp16 tile.
//
//   S^T [16 tokens x 8 queries] = K [16 tokens x head_dim] Q^T     a register has two fp16 (or four int8) of one token,
//                                                                  in the packing's order; Q is gathered in that order
//   O^T [head_dim x 8 queries] += V^T [head_dim x 16 tokens] P^T   a register has two fp16, of two tokens; rows of O
//                                                                  are in the packing's order until they are written
//
// A warp works by itself on 16 or 32 tokens at a time: stage (stage_tile.cuh), score (scores.cuh), online softmax
// (softmax.cuh), accumulate (values.cuh). No block barrier stands in the loop. For many query rows a team of warps
// takes its tiles together (warp_team.cuh). A row may have several sections: outlier channels with wider codes, or the
// signs of a residual. Each section has its range of the row's dimensions.
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

// Fills a section's unpack table (unpack_f16.cuh): each entry kTableCopies times, so that lanes have no bank conflicts.
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

// Copies two tables to shared memory: K's integer table, and the order of O's elements, because the lanes of a warp
// read different entries of it at once.
template <class Plan>
KV_DEVICE void fill_order() {
  IntegerTable<typename Plan::KeyCodes>::fill(Plan::kIntegerTableAt);
  KV_NO_UNROLL
  for (int i = thread(); i < Plan::kValueDim; i += Plan::kThreads)
    store_shared_u16(Plan::kOrderAt + i * 2, Plan::value_order(i));
}

// Tile loader of one side (K or V) of a KV split: the addresses of the warp's next tile. `stage` issues its copies.
template <class Plan, class Side>
struct KvTileLoader {
  static constexpr int kTile = Plan::kTile, kWarps = Plan::kWarps;
  const u8* first_row;  // the batch-head's first row
  i64 token_stride;     // bytes from row to row
  const u8 *codes,      // the warp's next tile; in layout planar, the lane's 16 bytes in it
      *scales;          // the lane's 16 bytes in the scales of the warp's next tile; used in layout planar
  bool is_aligned;      // may whole tiles take the straight-line copies?

  KV_DEVICE KvTileLoader(const CacheSide& side, const KvSplit& split, int tile)
      : first_row(side.codes + split.sequence * side.codes_sequence_stride +
                  QueryChunk<Plan>(split.head).head * side.codes_head_stride),
        token_stride(Side::kIsPlanar ? Side::kRowBytes : side.codes_token_stride),
        codes(pin_register(first_row + tile * tile_bytes() + (Side::kIsPlanar ? lane() * 16 : 0))),
        scales(pin_register(side.scales + split.sequence * side.scales_sequence_stride +
                            QueryChunk<Plan>(split.head).head * side.scales_head_stride +
                            i64(tile) * (kTile * Side::kScaleRowBytes) + lane() * 16)),
        is_aligned(kv::is_aligned<Side>(codes, token_stride)) {}

  template <bool kIsWhole>
  KV_DEVICE void stage(SharedAddress to, int valid) const {
    stage_tile<Side, kTile, kIsWhole>(to, token_stride, codes, scales, valid);
  }
  KV_DEVICE void advance() {
    // Pinned to registers, so that all copies use one sum. Otherwise the compiler holds one sum for each control path.
    codes = pin_register(codes + kWarps * tile_bytes());
    scales = pin_register(scales + kWarps * kTile * Side::kScaleRowBytes);
  }

 private:
  KV_DEVICE i64 tile_bytes() const { return Side::kIsPlanar ? kTile * Side::kRowBytes : kTile * token_stride; }
};

// Attends to one staged tile: scores, online softmax, accumulation. A subtile is 16 tokens; kSubtiles of them are
// taken at a time. scale: the factor from products to scores, which is softmax scale x log2(e) x the units of K and of
// the queries. token: number of the tile's first token in the sequence. length: tokens of the sequence.
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
    u32 k_misalignment[kSubtiles][2], v_misalignment[kSubtiles][4], p[kSubtiles][Plan::kColumnBlocks][2];
    key_misalignments<K>(k_misalignment, k_codes, k_stride);
    value_misalignments<V>(v_misalignment, v_codes, v_stride);
    Scores<Plan> x[kSubtiles];
    typename Features::Loaded loaded;
    features.load(loaded, token + first);
    // Here the loads run beside those of K. Rows have more registers to hold meanwhile.
    constexpr bool kLoadsEarly = IsWide<V> && V::kIsPlanar;
    if constexpr (kLoadsEarly) sums.value_scales.load(stage + K::kStageBytes, first, v_misalignment, table);
    score<Plan>(x, stage, first, k_misalignment, queries, table, scale, sums.softmax);
    features.apply(x, loaded, token + first, sums.softmax);
    const bool cuts = features.cuts(token + first, token + first + kTokens - 1);
    if (token + first + kTokens > length || cuts) mask_scores<Plan>(x, features, token + first, length);
    constexpr Hiding kHiding = hiding_of<Plan>();
    const auto hides = [&] {
      if constexpr (Features::kMayHide) return any(cuts | hides_by_score<Plan, Features>(x));
      return false;
    };
    const auto hide = [&] {
      if constexpr (Features::kMayHide)
        return hide_values<Plan>(x, stage + K::kStageBytes, first, v_misalignment, v_codes, v_stride);
      return true;
    };
    if constexpr (Features::kMayHide && kHiding == Hiding::kFirst) {
      hide_late<Plan>(x, features, token + first);
      if (hides() && !hide()) continue;
    }
    bool needs_rescale = largest_bits<Plan>(x) >= sums.softmax.rescales_at;
    if (Plan::Feature::template skips_values<Plan>(x, needs_rescale)) {
      exponentiate<Plan>(p, x, sums.softmax);  // for the denominator alone: the skipped tokens keep their weight
      continue;
    }
    if constexpr ((V::kScalesGroups || IsWide<V>)&&!kLoadsEarly)
      sums.value_scales.load(stage + K::kStageBytes, first, v_misalignment, table);
    if constexpr (V::kScalesGroups || IsWide<V>) needs_rescale |= !sums.value_scales.fit();
    if (any(needs_rescale)) {
      if constexpr (Features::kMayHide && kHiding != Hiding::kFirst) {
        hide_late<Plan>(x, features, token + first);
        if (any(!sums.value_scales.fit()) && hides()) {
          if constexpr (kHiding == Hiding::kByScales) {
            hide_scales<Plan>(x, sums.value_scales);
          } else {
            if (!hide()) continue;
            sums.value_scales.load(stage + K::kStageBytes, first, v_misalignment, table);
          }
        }
      }
      rescale<Plan>(x, sums.softmax, sums.o);
      if constexpr (V::kScalesGroups || IsWide<V>) sums.value_scales.raise(sums.o);
    }
    exponentiate<Plan>(p, x, sums.softmax);
    for_each(typename V::Sections{}, [&](auto section) {
      accumulate_section<Plan, decltype(section)>(sums.o, sums.value_scales, p, stage + K::kStageBytes, first,
                                                  v_misalignment, table);
    });
  }
}

// Where a head does not fill the lanes of a warp, zeros stand after each staged row: the queries are zero there, and
// zero times NaN would be NaN; of V, numbers are looked at. at: of the side's first row in the warp's first stage.
template <class Plan, class Side>
KV_DEVICE void clear_pads(SharedAddress at) {
  constexpr int kWords = Side::kPadBytes / 4;
  KV_NO_UNROLL
  for (int stage = 0; stage < Plan::kStages; ++stage, at += Plan::kWarps * Plan::kStageBytes) KV_NO_UNROLL
  for (int i = lane(); i < Plan::kTile * kWords; i += 32)
    store_shared_u32(at + i / kWords * Side::kPitch + Side::kRowBytes + i % kWords * 4, 0);
}

// One KV split, from its queries to its partial result or its output. All warps of the block take part.
template <class Plan, class Args, class TileScheduler>
KV_DEVICE void attend_split(const Args& args, TileScheduler& scheduler, KvSplit& split) {
  using K = typename Plan::K;
  using V = typename Plan::V;
  constexpr int kTile = Plan::kTile, kStages = Plan::kStages;
  scheduler.save_to_shared(Plan::kSchedulerAt, split);
  // Queries are loaded before the ring is filled. Loads behind the ring's copies would wait for all of these copies.
  QueryRows<Plan> rows;
  rows.load(args, split.sequence, QueryChunk<Plan>(split.head));
  const auto features = features_of<Plan>(args, split);

  int tile = split.first + warp();
  KvTileLoader<Plan, K> k(args.k, split, tile);
  KvTileLoader<Plan, V> v(args.v, split, tile);
  const int last = int(hide_from_optimizer(split.last));
  const int readable = split.template readable<Plan>();
  const int whole = int(hide_from_optimizer(k.is_aligned && v.is_aligned ? u32(readable) / kTile : 0));
  // A team stages all tiles of its last round, those behind the split's end too, because the output is summed over all
  // tiles of the team without a check of which exist.
  const int staged_end =
      Plan::kTeam > 1 ? int(hide_from_optimizer(last + (Plan::kTeam - 1 - (last - split.first - 1) % Plan::kTeam)))
                      : last;
  const auto stage = [&](int tile, SharedAddress to) {
    if (tile < staged_end) {
      if (tile < whole) {
        k.template stage<true>(to, kTile);
        v.template stage<true>(to + K::kStageBytes, kTile);
      } else {
        const int valid = clamp_to(readable - tile * kTile, kTile);
        k.template stage<false>(to, valid);
        v.template stage<false>(to + K::kStageBytes, valid);
      }
    }
    copy_commit();
    k.advance(), v.advance();
  };
  constexpr int kRingStride = Plan::kWarps * Plan::kStageBytes;  // bytes of one stage of every warp
  const SharedAddress ring = hide_from_optimizer(Plan::kRingAt + warp() * Plan::kStageBytes),
                      ring_last = ring + (kStages - 1) * kRingStride;
  if constexpr (K::kPadBytes > 0) clear_pads<Plan, K>(ring);
  if constexpr (V::kPadBytes > 0 && !requires { V::kIsInKeys; }) clear_pads<Plan, V>(ring + K::kStageBytes);
  KV_NO_UNROLL
  for (SharedAddress to = ring; to != ring_last; to += kRingStride, tile += Plan::kWarps) stage(tile, to);

  const float unscaled = args.scale_log2 * K::kUnit;
  rows.store(unscaled);
  Queries<Plan> queries;
  const float scale = queries.hold(unscaled);

  Sums<Plan> sums;
  sums.softmax.reset();
  if constexpr (Plan::kTeam > 1) {
    typename Plan::Team tiles{tile - (kStages - 1) * Plan::kWarps,
                              last,
                              split.length,
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
      take_tile<Plan>(sums, taken, queries, features, scale, (tile - kAhead) * kTile, split.length, k.first_row,
                      k.token_stride, v.first_row, v.token_stride);
      filled = taken;
      taken = taken == ring_last ? ring : taken + kRingStride;
    }
  }

  KV_UNROLL
  for (int i = 0; i < 2 * Plan::kColumnBlocks; ++i) {
    float& sum = sums.softmax.sum[i / 2][i % 2];
    KV_UNROLL
    for (int mask = 4; mask < 32; mask <<= 1) sum += shfl_xor(sum, mask);
  }
  const float unit =
      args.value_scale * V::kUnit * (V::kScalesGroups || IsWide<V> ? exp2_fast(float(sums.value_scales.log2)) : 1.f);
  split = scheduler.restore_from_shared(Plan::kSchedulerAt);
  finish_split<Plan>(args, scheduler, split, sums.o, sums.softmax, unit);
}

// Prefetches the first tiles of a split to the L2 while the previous kernel still runs. If that kernel still writes
// there, the later copies see what it has written.
template <class Plan, class Side>
KV_DEVICE void prefetch_side(const CacheSide& side, const KvSplit& split) {
  constexpr int kLine = 128, kMost = Plan::kWarps * Plan::kStages;
  if constexpr (Side::kIsPlanar) {
    const int first = split.first * Plan::kTile,
              last = (split.last < split.first + kMost ? split.last : split.first + kMost) * Plan::kTile;
    const int readable = split.template readable<Plan>();
    const int bytes = ((last < readable ? last : readable) - first) * Side::kRowBytes;
    const u8* const codes = side.codes + split.sequence * side.codes_sequence_stride +
                            QueryChunk<Plan>(split.head).head * side.codes_head_stride + i64(first) * Side::kRowBytes;
    KV_NO_UNROLL
    for (int at = thread() * kLine; at < bytes; at += Plan::kThreads * kLine) prefetch_line(codes + at);
  }
}

// Stores the new tokens of a call (kernels/decode/append.cuh). A call with plain AttentionArgs has none.
template <class Plan>
KV_DEVICE void append(const AttentionArgs&, const KvSplit&) {}

// The kernel: fills the tables, makes the schedule, and takes the block's KV splits one after the other.
template <class Plan, class Args>
KV_DEVICE void decode(const Args& args) {
  using K = typename Plan::K;
  using V = typename Plan::V;
  static_assert(K::kDim == Plan::kKeyDim && V::kDim == Plan::kValueDim, "sections must cover the row");
  fill_tables<K>();
  fill_tables<V>();
  fill_order<Plan>();
  pdl_trigger();  // pdl_trigger: the next kernel may start while the last blocks of this one merge
  auto scheduler = scheduler_of<Plan>(args);
  static_assert(Plan::kSchedulerAt + decltype(scheduler)::kBytes <= Plan::kOrderAt, "the saved scheduler fits");
  if (!may_read_lengths_early<Plan>(args)) pdl_wait();
  u32 begin, end;
  KvSplit split;
  KV_NO_UNROLL
  do {  // again, if the previous kernel has changed the lengths that the schedule was made from
    scheduler.read_lengths();
    begin = scheduler.begin(block_x()), end = scheduler.begin(block_x() + 1);
    split = KvSplit{};
    if (warp_uniform(begin < end)) split = scheduler.split_at(begin, end);
    prefetch_side<Plan, K>(args.k, split);
    prefetch_side<Plan, V>(args.v, split);
    pdl_wait();  // pdl_wait: from here on, what the previous kernel wrote may be read
  } while (warp_uniform(scheduler.lengths_changed()));
  if (!warp_uniform(begin < end)) return;
  KV_NO_UNROLL
  while (true) {
    append<Plan>(args, split);
    attend_split<Plan>(args, scheduler, split);
    // Computed again, with the same result, so that no register holds it while a split is attended to.
    end = scheduler.begin(block_x() + 1);
    if (!warp_uniform(split.linear_end < end)) return;
    sync_block();  // the next split reuses shared memory
    split = scheduler.next(split, end);
  }
}

}  // namespace kv
