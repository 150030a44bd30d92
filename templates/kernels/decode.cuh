// decode: attention of a few query rows (GQA group x query length) over a long packed cache. Split-KV: each block
// takes a run of tokens and writes a partial result; `merge` combines them.
//
// Operands are swapped: the cache is the A operand of the tensor cores and queries are the eight columns of B, so
// packed K and V go from staged bytes to fragments in registers and never exist as an fp16 tile.
//
//   S^T [16 tokens x 8 queries] = K [16 tokens x head_dim] Q^T       pairs run along head_dim, in the order that the
//                                                                    packing gives; Q is gathered in that same order
//   O^T [head_dim x 8 queries] += V^T [head_dim x 16 tokens] P^T     pairs run along tokens; rows of O come out in the
//                                                                    packing's order, put right when they are written
//
// A warp works alone on 16 or 32 tokens at a time: stage, score (decode_keys), soften (decode_softmax), accumulate
// (decode_values). No block barrier stands in the loop. A row may have several sections: outlier channels with wider codes,
// signs of a residual; each brings its share of the inner dimension.
// SPDX-License-Identifier: MIT
#pragma once
#include "core/args.cuh"
#include "core/queries.cuh"
#include "core/stage.cuh"
#include "kernels/decode_keys.cuh"
#include "kernels/decode_softmax.cuh"
#include "kernels/decode_values.cuh"

namespace kv {

template <class Section>
KV_DEVICE void fill_table() {
  using Pairs = typename Section::Pairs;
  constexpr int kCopies = Section::kTableCopies;
  KV_NO_UNROLL
  for (int i = thread(); i < Pairs::kEntries * kCopies; i += Section::kThreads)
    store_shared_u32(Section::kTableAt + i / kCopies * Section::kTableStride + i % kCopies * 4,
                     Pairs::entry(i / kCopies));
}
template <class Side>
KV_DEVICE void fill_tables() {
  for_each(typename Side::Sections{}, [](auto section) {
    if constexpr (decltype(section)::kOwnsTable) fill_table<decltype(section)>();
  });
}

// Warps of the block meet in shared memory; the block's partial result goes out, dimensions in their natural
// order.
template <class Plan>
KV_DEVICE void write_partial(const AttentionArgs& args, const Outputs<Plan>& o, const Softmax<Plan>& softmax,
                             float unit) {
  constexpr int kPitch = Plan::kValueDim + 4, kRows = Plan::kRows;
  const int g = lane() >> 2, c = lane() & 3;
  float* const state = reinterpret_cast<float*>(shared_bytes());  // [warp][row][2]
  float* const sums = state + Plan::kWarps * kRows * 2;           // [warp][row][kPitch]
  copy_wait<0>();
  sync_block();  // stages, queries and tables are dead from here
  KV_UNROLL
  for (int i = 0; i < 2 * Plan::kColumnBlocks; ++i) {
    const int n = i / 2, j = i % 2, row = n * 8 + 2 * c + j, at = warp() * kRows + row;
    if (row < kRows) {
      if (g == 0) state[at * 2] = softmax.top[n][j], state[at * 2 + 1] = softmax.sum[n][j];
      KV_UNROLL
      for (int half = 0; half < Plan::kValueDim / 8; ++half)
        sums[at * kPitch + half * 8 + g] = o[n][half / 2][half % 2 * 2 + j] * unit;
    }
  }
  sync_block();
  const i64 first = ((i64(block_z()) * args.kv_heads + block_y()) * args.splits + block_x()) * kRows;
  KV_NO_UNROLL
  for (int i = thread(); i < kRows * Plan::kValueDim; i += Plan::kThreads) {
    const int row = i / Plan::kValueDim, at = i % Plan::kValueDim;
    float top = kFloor, denominator = 0.f, sum = 0.f;
    for (int w = 0; w < Plan::kWarps; ++w) top = larger(top, state[(w * kRows + row) * 2]);
    for (int w = 0; w < Plan::kWarps; ++w) {
      const float weight = exp2_fast(state[(w * kRows + row) * 2] - top);
      denominator += weight * state[(w * kRows + row) * 2 + 1];
      sum += weight * sums[(w * kRows + row) * kPitch + at];
    }
    args.partial[(first + row) * Plan::kValueDim + Plan::value_order(at)] = sum;
    if (at == 0) args.partial_state[(first + row) * 2] = top, args.partial_state[(first + row) * 2 + 1] = denominator;
  }
}

// Where the next tile of the warp comes from.
template <class Plan>
struct Cursor {
  const u8 *k_codes, *k_scales, *v_codes, *v_scales;
  KV_DEVICE void advance(i64 k_bytes, i64 v_bytes, int tokens) {
    k_codes += k_bytes;
    v_codes += v_bytes;
    if constexpr (Plan::K::kScaleRowBytes > 0) k_scales += tokens * i64(Plan::K::kScaleRowBytes);
    if constexpr (Plan::V::kScaleRowBytes > 0) v_scales += tokens * i64(Plan::V::kScaleRowBytes);
  }
};

template <class Plan>
KV_DEVICE void decode(const AttentionArgs& args) {
  using K = typename Plan::K;
  using V = typename Plan::V;
  constexpr int kTile = Plan::kTile, kStages = Plan::kStages, kSubtiles = Plan::kSubtiles;
  static_assert(K::kDim == Plan::kKeyDim && V::kDim == Plan::kValueDim, "sections must cover the row");

  const int given = args.lengths ? args.lengths[block_z()] : args.tokens,
            length = given < args.tokens ? given : args.tokens;
  const int begin = block_x() * args.chunk_tokens;
  const int end = begin + args.chunk_tokens < length ? begin + args.chunk_tokens : length;
  const u8* const k_codes =
      args.k.codes + block_z() * args.k.codes_sequence_stride + block_y() * args.k.codes_head_stride;
  const u8* const k_scales =
      args.k.scales + block_z() * args.k.scales_sequence_stride + block_y() * args.k.scales_head_stride;
  const u8* const v_codes =
      args.v.codes + block_z() * args.v.codes_sequence_stride + block_y() * args.v.codes_head_stride;
  const u8* const v_scales =
      args.v.scales + block_z() * args.v.scales_sequence_stride + block_y() * args.v.scales_head_stride;

  const SharedAddress ring = Plan::kRingAt + warp() * (kStages * Plan::kStageBytes);
  const Table table{u32(lane() % K::kTableCopies * 4)};
  const i64 k_stride = args.k.codes_token_stride, v_stride = args.v.codes_token_stride;

  if constexpr (K::kOwnsTable || V::kOwnsTable) check_tables();
  load_queries<Plan>(Plan::kQueriesAt, args);
  sum_queries<Plan>(args);
  fill_tables<K>();
  fill_tables<V>();
  sync_block();
  Queries<Plan> queries;
  queries.at = Plan::kQueriesAt;
  queries.hold();

  Outputs<Plan> o = {};
  ValueScales<Plan> value_scales;
  Softmax<Plan> softmax = {};
  KV_UNROLL
  for (int n = 0; n < Plan::kColumnBlocks; ++n) softmax.top[n][0] = softmax.top[n][1] = kFloor;
  const float scale = args.scale_log2 * K::kUnit * kQueryUnit<Plan>;
  const int g = lane() >> 2, c = lane() & 3;

  // The tile at `ahead` is staged while the tile at `token`, kStages - 1 steps behind, is consumed; the first steps only stage.
  constexpr int kStep = Plan::kWarps * kTile;
  int ahead = begin + warp() * kTile, token = ahead - (kStages - 1) * kStep, fill = 0, take = 0;
  const i64 k_token = K::kIsPlanar ? K::kRowBytes : k_stride, v_token = V::kIsPlanar ? V::kRowBytes : v_stride;
  const bool aligned = is_aligned<K>(k_codes, k_stride) && is_aligned<V>(v_codes, v_stride);
  Cursor<Plan> next{k_codes, k_scales, v_codes, v_scales};
  next.advance(ahead * k_token, ahead * v_token, ahead);
  KV_NO_UNROLL
  for (; token < end; token += kStep, ahead += kStep) {
    sync_warp();  // every lane is done with the stage that is filled now
    if (ahead + kTile <= end && aligned) {
      const SharedAddress to = ring + fill * Plan::kStageBytes;
      stage_tile<K, kTile, true>(to, k_stride, next.k_codes, next.k_scales, kTile);
      stage_tile<V, kTile, true>(to + K::kStageBytes, v_stride, next.v_codes, next.v_scales, kTile);
    } else if (ahead < end) {
      const SharedAddress to = ring + fill * Plan::kStageBytes;
      stage_tile<K, kTile, false>(to, k_stride, next.k_codes, next.k_scales, clamp_to(end - ahead, kTile));
      stage_tile<V, kTile, false>(to + K::kStageBytes, v_stride, next.v_codes, next.v_scales,
                                  clamp_to(end - ahead, kTile));
    }
    next.advance(kStep * k_token, kStep * v_token, kStep);
    copy_commit();
    fill = fill + 1 == kStages ? 0 : fill + 1;
    if (token < begin) continue;
    copy_wait<kStages - 1>();
    sync_warp();  // every lane's copies of this tile have landed
    const SharedAddress stage = ring + take * Plan::kStageBytes;
    take = take + 1 == kStages ? 0 : take + 1;

    KV_NO_UNROLL
    for (int first = 0; first < kTile; first += kSubtiles * 16) {
      u32 k_skew[kSubtiles][2], v_skew[kSubtiles][4], p[kSubtiles][Plan::kColumnBlocks][2];
      KV_UNROLL
      for (int i = 0; i < kSubtiles * 2; ++i)
        k_skew[i / 2][i % 2] = row_skew<K>(k_codes, k_stride, token + first + i / 2 * 16 + g + i % 2 * 8);
      KV_UNROLL
      for (int i = 0; i < kSubtiles * 4; ++i)
        v_skew[i / 4][i % 4] =
            row_skew<V>(v_codes, v_stride, token + first + i / 4 * 16 + 2 * c + i % 2 + i % 4 / 2 * 8);
      Scores<Plan> s[kSubtiles];
      for_each(typename K::Sections{},
               [&](auto section) { score_section<Plan, decltype(section)>(s, stage, first, k_skew, queries, table); });
      soften<Plan>(p, s, softmax, o, scale, token + first, end, length);
      if constexpr (V::kScalesGroups) value_scales.load(o, stage + K::kStageBytes, first, v_skew, table);
      for_each(typename V::Sections{}, [&](auto section) {
        accumulate_section<Plan, decltype(section)>(o, value_scales, p, stage + K::kStageBytes, first, v_skew, table);
      });
    }
  }

  KV_UNROLL
  for (int i = 0; i < 2 * Plan::kColumnBlocks; ++i) {
    KV_UNROLL
    for (int mask = 4; mask < 32; mask <<= 1) softmax.sum[i / 2][i % 2] += shfl_xor(softmax.sum[i / 2][i % 2], mask);
  }
  write_partial<Plan>(args, o, softmax,
                      args.value_scale * V::kUnit * (V::kScalesGroups ? exp2_fast(float(value_scales.log2)) : 1.f));
}

}  // namespace kv
