// decode: attention of a few query rows (GQA group x query length) over a long packed cache. Split-KV: each
// block takes a run of tokens and writes a partial result; `merge` combines them.
//
// Operands are swapped: the cache is the A operand of the tensor cores and queries are the eight columns of
// B, so packed K and V go from staged bytes to fragments in registers and never exist as an fp16 tile.
//
//      S^T [16 tokens x 8 queries] = K [16 tokens x head_dim] Q^T          pairs along head_dim, in the order
//      the packing gives them;
//                                                                          Q is gathered in that same order
//                                                                          (Plan::key_order)
//      O^T [head_dim x 8 queries] += V^T [head_dim x 16 tokens] P^T        pairs along tokens; rows of O come
//      out in the order of the
//                                                                          packing and are put right when
//                                                                          they are written
//
// One warp works alone on 16 tokens at a time: stage, score, soften, accumulate. No block barrier stands in
// the loop. Softmax is base 2 in fp32 with a stale maximum: it is only renewed, by one vote of the warp, when
// a score exceeds it by kSlack. Probabilities are fp16, shifted by kBias powers of two into the middle of its
// range; the shift is in numerator and denominator alike.
// SPDX-License-Identifier: MIT
#pragma once
#include "core/args.cuh"
#include "core/pairs.cuh"
#include "core/simt.cuh"
#include "core/stage.cuh"

namespace kv {

constexpr float kFloor =
    -1e29f;  // the maximum before any token: above kMasked, so masked tokens weigh 2^-huge = 0
constexpr float kMasked = -1e30f;
constexpr float kSlack =
    6.f;  // powers of two that a probability may exceed 1 by before the maximum is renewed

// Queries to shared memory as B fragments, [step][block of 8 rows][lane] of kQueryParts x (b0, b1). An f16
// query is exact in one part; an f32 one (rotated) is split into high and low halves, exact to 2^-22.
template <class Plan>
KV_DEVICE void load_queries(SharedAddress to, const AttentionArgs& args) {
  constexpr int kSteps = Plan::kHeadDim / 16, kItems = kSteps * Plan::kColumnBlocks * 32;
  KV_NO_UNROLL
  for (int i = thread(); i < kItems; i += Plan::kThreads) {
    const int step = i / (32 * Plan::kColumnBlocks), row = i / 32 % Plan::kColumnBlocks * 8 + (i >> 2 & 7),
              c = i & 3;
    const int query = row / Plan::kGroup, head = block_y() * Plan::kGroup + row % Plan::kGroup;
    const i64 at =
        block_z() * args.q.sequence_stride + query * args.q.query_stride + head * args.q.head_stride;
    float high[4], low[4];
    KV_UNROLL
    for (int j = 0; j < 4; ++j) {
      const float q = row < Plan::kRows
                          ? Plan::load_query(args.q.data, at + Plan::key_order((step * 4 + c) * 4 + j))
                          : 0.f;
      high[j] = f32_from_f16(f16_from_f32(q));
      low[j] = q - high[j];
    }
    const u32 b0 = pack_f16x2(high[0], high[1]), b1 = pack_f16x2(high[2], high[3]);
    if constexpr (Plan::kQueryParts == 2) {
      store_shared_u128(to + i * 16, b0, b1, pack_f16x2(low[0], low[1]), pack_f16x2(low[2], low[3]));
    } else {
      store_shared_u32(to + i * 8, b0);
      store_shared_u32(to + i * 8 + 4, b1);
    }
  }
}

// The lane's B fragments of Q: held in registers where there is room, else read again for every 16 tokens.
template <class Plan>
struct Queries {
  static constexpr int kFragments = Plan::kHeadDim / 16 * Plan::kColumnBlocks, kWords = 2 * Plan::kQueryParts;
  u32 held[Plan::kHoldQueries ? kFragments : 1][kWords];
  SharedAddress at;

  KV_DEVICE void read(int fragment, u32 (&q)[kWords]) const {
    if constexpr (kWords == 4)
      load_shared_u128(q, at + (fragment * 32 + lane()) * 16);
    else
      load_shared_u64(q, at + (fragment * 32 + lane()) * 8);
  }
  KV_DEVICE void hold() {
    if constexpr (Plan::kHoldQueries) {
      KV_UNROLL
      for (int i = 0; i < kFragments; ++i) read(i, held[i]);
    }
  }
  KV_DEVICE void get(int fragment, u32 (&q)[kWords]) const {
    if constexpr (Plan::kHoldQueries) {
      KV_UNROLL
      for (int i = 0; i < kWords; ++i) q[i] = held[fragment][i];
    } else {
      read(fragment, q);
    }
  }
};

template <class Side>
KV_DEVICE void fill_table() {
  using Pairs = typename Side::Pairs;
  KV_NO_UNROLL
  for (int i = thread(); i < Pairs::kEntries * Side::kTableCopies; i += Side::kThreads)
    store_shared_u32(Side::kTableAt + i / Side::kTableCopies * Side::kTableStride + i % Side::kTableCopies * 4,
                     Pairs::entry(i / Side::kTableCopies));
}

template <class Plan>
using Scores = float[Plan::kColumnBlocks][4];
template <class Plan>
using Outputs = float[Plan::kColumnBlocks][Plan::kHeadDim / 16][4];

// s = K Q^T for the 16 tokens from `token` of the staged tile, in the accumulator layout (simt.cuh), not yet
// times the softmax scale.
template <class Plan>
KV_DEVICE void score(Scores<Plan>& s, SharedAddress stage, int token, const u32 (&skew)[2], const Queries<Plan>& queries,
                     Table table) {
  using K = typename Plan::K;
  constexpr int kSteps = K::kRunCodes / 4;  // k16 steps a run: four lanes bring four codes each
  const int g = lane() >> 2, c = lane() & 3;
  KV_UNROLL
  for (int n = 0; n < Plan::kColumnBlocks; ++n)
    for (int i = 0; i < 4; ++i) s[n][i] = 0.f;
  const SharedAddress low_row = stage + (token + g) * K::kPitch + skew[0];
  const SharedAddress high_row = stage + (token + g + 8) * K::kPitch + skew[1];
  KV_UNROLL
  for (int group = 0; group < K::kGroups; ++group) {
    Scores<Plan> sum = {};
    KV_UNROLL
    for (int run = 0; run < K::kRuns; ++run) {
      u32 low[K::kRunWords], high[K::kRunWords], a[K::kRunCodes / 2], b[K::kRunCodes / 2];
      load_run<K>(low_row, group, run, c, low);
      load_run<K>(high_row, group, run, c, high);
      K::Run::row(low, a, table);
      K::Run::row(high, b, table);
      KV_UNROLL
      for (int step = 0; step < kSteps; ++step) KV_UNROLL
      for (int n = 0; n < Plan::kColumnBlocks; ++n) {
        u32 q[Queries<Plan>::kWords];
        queries.get(((group * K::kRuns + run) * kSteps + step) * Plan::kColumnBlocks + n, q);
        KV_UNROLL
        for (int part = 0; part < Plan::kQueryParts; ++part)
          mma_16x8x16(sum[n], a[2 * step], b[2 * step], a[2 * step + 1], b[2 * step + 1], q[2 * part],
                      q[2 * part + 1]);
      }
    }
    float low_scale = 1.f, high_scale = 1.f;
    if constexpr (K::kHasScale) {
      low_scale = f32_from_f16(load_scale<K>(stage, skew[0], token + g, group));
      high_scale = f32_from_f16(load_scale<K>(stage, skew[1], token + g + 8, group));
    }
    KV_UNROLL
    for (int n = 0; n < Plan::kColumnBlocks; ++n)
      for (int i = 0; i < 4; ++i) s[n][i] += sum[n][i] * (i < 2 ? low_scale : high_scale);
  }
}

// o += V^T P^T for the same 16 tokens; p holds the B fragments of P^T.
template <class Plan>
KV_DEVICE void accumulate(Outputs<Plan>& o, const u32 (&p)[Plan::kColumnBlocks][2], SharedAddress stage,
                          int token, const u32 (&skew)[4], Table table) {
  using V = typename Plan::V;
  constexpr int kTiles = V::kRunCodes / 2;  // m16 tiles a run: eight lanes bring two codes each
  const int g = lane() >> 2, c = lane() & 3;
  KV_UNROLL
  for (int group = 0; group < V::kGroups; ++group) {
    u32 b[Plan::kColumnBlocks][2];
    if constexpr (V::kHasScale) {
      const int t = token + 2 * c;
      const u32 first = load_scale<V>(stage, skew[0], t, group) | load_scale<V>(stage, skew[1], t + 1, group) << 16;
      const u32 second = load_scale<V>(stage, skew[2], t + 8, group) | load_scale<V>(stage, skew[3], t + 9, group) << 16;
      KV_UNROLL
      for (int n = 0; n < Plan::kColumnBlocks; ++n)
        b[n][0] = mul_f16x2(p[n][0], first), b[n][1] = mul_f16x2(p[n][1], second);
    } else {
      KV_UNROLL
      for (int n = 0; n < Plan::kColumnBlocks; ++n) b[n][0] = p[n][0], b[n][1] = p[n][1];
    }
    KV_UNROLL
    for (int run = 0; run < V::kRuns; ++run) {
      u32 w[4][V::kRunWords], first[V::kRunCodes], second[V::kRunCodes];
      KV_UNROLL
      for (int i = 0; i < 4; ++i)  // tokens 2c, 2c+1, 2c+8, 2c+9
        load_run<V>(stage + (token + 2 * c + (i & 1) + 8 * (i >> 1)) * V::kPitch + skew[i], group, run, g, w[i]);
      V::Run::column(w[0], w[1], first, table);
      V::Run::column(w[2], w[3], second, table);
      KV_UNROLL
      for (int i = 0; i < kTiles; ++i) KV_UNROLL
      for (int n = 0; n < Plan::kColumnBlocks; ++n)
        mma_16x8x16(o[n][(group * V::kRuns + run) * kTiles + i], first[2 * i], first[2 * i + 1],
                    second[2 * i], second[2 * i + 1], b[n][0], b[n][1]);
    }
  }
}

// Warps of the block meet in shared memory; the block's partial result goes out, dimensions in their natural
// order.
template <class Plan>
KV_DEVICE void write_partial(const AttentionArgs& args, const Outputs<Plan>& o,
                             const float (&m)[Plan::kColumnBlocks][2],
                             const float (&d)[Plan::kColumnBlocks][2]) {
  constexpr int kPitch = Plan::kHeadDim + 4, kRows = Plan::kRows;
  const int g = lane() >> 2, c = lane() & 3;
  float* const state = reinterpret_cast<float*>(shared_bytes());  // [warp][row][2]
  float* const sums = state + Plan::kWarps * kRows * 2;           // [warp][row][kPitch]
  copy_wait<0>();
  sync_block();  // stages, queries and tables are dead from here
  KV_UNROLL
  for (int n = 0; n < Plan::kColumnBlocks; ++n) KV_UNROLL
  for (int i = 0; i < 2; ++i) {
    const int row = n * 8 + 2 * c + i;
    if (row < kRows) {
      if (g == 0)
        state[(warp() * kRows + row) * 2] = m[n][i], state[(warp() * kRows + row) * 2 + 1] = d[n][i];
      KV_UNROLL
      for (int tile = 0; tile < Plan::kHeadDim / 16; ++tile)
        for (int high = 0; high < 2; ++high)
          sums[(warp() * kRows + row) * kPitch + tile * 16 + high * 8 + g] = o[n][tile][2 * high + i];
    }
  }
  sync_block();
  const i64 first = ((i64(block_z()) * args.kv_heads + block_y()) * args.splits + block_x()) * kRows;
  KV_NO_UNROLL
  for (int i = thread(); i < kRows * Plan::kHeadDim; i += Plan::kThreads) {
    const int row = i / Plan::kHeadDim, at = i % Plan::kHeadDim;
    float top = kFloor, denominator = 0.f, sum = 0.f;
    for (int w = 0; w < Plan::kWarps; ++w) top = larger(top, state[(w * kRows + row) * 2]);
    for (int w = 0; w < Plan::kWarps; ++w) {
      const float weight = exp2_fast(state[(w * kRows + row) * 2] - top);
      denominator += weight * state[(w * kRows + row) * 2 + 1];
      sum += weight * sums[(w * kRows + row) * kPitch + at];
    }
    args.partial[(first + row) * Plan::kHeadDim + Plan::value_order(at)] = sum * Plan::V::kUnit;
    if (at == 0)
      args.partial_state[(first + row) * 2] = top, args.partial_state[(first + row) * 2 + 1] = denominator;
  }
}

template <class Plan>
KV_DEVICE void decode(const AttentionArgs& args) {
  using K = typename Plan::K;
  using V = typename Plan::V;
  constexpr int kColumns = Plan::kColumnBlocks, kTile = Plan::kTile, kStages = Plan::kStages;
  static_assert(K::kGroups * K::kRuns * K::kRunCodes * 4 == Plan::kHeadDim, "K runs must cover the row");
  static_assert(V::kGroups * V::kRuns * V::kRunCodes * 8 == Plan::kHeadDim, "V runs must cover the row");

  const int length = args.lengths ? args.lengths[block_z()] : args.tokens;
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
  const Table k_table{u32(lane() % K::kTableCopies * 4)};
  const Table v_table{u32(lane() % V::kTableCopies * 4)};
  const i64 k_stride = args.k.codes_token_stride, v_stride = args.v.codes_token_stride;

  check_tables();
  load_queries<Plan>(Plan::kQueriesAt, args);
  if constexpr (K::kOwnsTable) fill_table<K>();
  if constexpr (V::kOwnsTable) fill_table<V>();
  sync_block();
  Queries<Plan> queries;
  queries.at = Plan::kQueriesAt;
  queries.hold();

  Outputs<Plan> o = {};
  float m[kColumns][2], d[kColumns][2] = {};
  KV_UNROLL
  for (int n = 0; n < kColumns; ++n) m[n][0] = m[n][1] = kFloor;
  const float scale = args.scale_log2 * K::kUnit;

  // The tile at `ahead` is staged while the tile at `token`, kStages - 1 steps behind, is consumed; the first steps only stage.
  constexpr int kStep = Plan::kWarps * kTile;
  int ahead = begin + warp() * kTile, token = ahead - (kStages - 1) * kStep, fill = 0, take = 0;
  KV_NO_UNROLL
  for (; token < end; token += kStep, ahead += kStep) {
    sync_warp();  // every lane is done with the stage that is filled now
    if (ahead < end) {
      const SharedAddress to = ring + fill * Plan::kStageBytes;
      stage_tile<K, kTile>(to, k_stride, k_codes, k_scales, ahead, end - ahead);
      stage_tile<V, kTile>(to + K::kStageBytes, v_stride, v_codes, v_scales, ahead, end - ahead);
    }
    copy_commit();
    fill = fill + 1 == kStages ? 0 : fill + 1;
    if (token < begin) continue;
    copy_wait<kStages - 1>();
    sync_warp();  // every lane's copies of this tile have landed
    const SharedAddress stage = ring + take * Plan::kStageBytes;
    take = take + 1 == kStages ? 0 : take + 1;

    KV_NO_UNROLL
    for (int sub = 0; sub < kTile; sub += 16) {
      const int g = lane() >> 2, c = lane() & 3;
      const u32 k_skew[2] = {row_skew<K>(k_codes, k_stride, token + sub + g), row_skew<K>(k_codes, k_stride, token + sub + g + 8)};
      Scores<Plan> s;
      score<Plan>(s, stage, sub, k_skew, queries, k_table);
      const int first = token + sub + g;
      const bool needs_mask = token + sub + 16 > end || Plan::Feature::cuts(token + sub + 15, length);
      bool grown = false;
      KV_UNROLL
      for (int n = 0; n < kColumns; ++n) KV_UNROLL
      for (int i = 0; i < 4; ++i) {
        s[n][i] *= scale;
        if (needs_mask) {
          const int t = first + 8 * (i >> 1), row = n * 8 + 2 * c + (i & 1);
          if (t >= end || !Plan::Feature::sees(row / Plan::kGroup, t, length)) s[n][i] = kMasked;
        }
        grown |= s[n][i] > m[n][i & 1] + kSlack;
      }
      if (any(grown)) {
        KV_UNROLL
        for (int n = 0; n < kColumns; ++n) KV_UNROLL
        for (int i = 0; i < 2; ++i) {
          float top = larger(s[n][i], s[n][i + 2]);
          KV_UNROLL
          for (int mask = 4; mask < 32; mask <<= 1) top = larger(top, shfl_xor(top, mask));
          const float renewed = larger(m[n][i], top), keep = exp2_fast(m[n][i] - renewed);
          m[n][i] = renewed;
          d[n][i] *= keep;
          KV_UNROLL
          for (int tile = 0; tile < Plan::kHeadDim / 16; ++tile)
            o[n][tile][i] *= keep, o[n][tile][i + 2] *= keep;
        }
      }
      u32 p[kColumns][2];
      KV_UNROLL
      for (int n = 0; n < kColumns; ++n) {
        float e[4];
        KV_UNROLL
        for (int i = 0; i < 4; ++i) {
          e[i] = exp2_fast(s[n][i] - m[n][i & 1] + Plan::V::kBias);
          d[n][i & 1] += e[i];
        }
        p[n][0] = transpose_8x8(pack_f16x2(e[0], e[1]));
        p[n][1] = transpose_8x8(pack_f16x2(e[2], e[3]));
      }
      const int t = token + sub + 2 * c;
      const u32 v_skew[4] = {row_skew<V>(v_codes, v_stride, t), row_skew<V>(v_codes, v_stride, t + 1),
                             row_skew<V>(v_codes, v_stride, t + 8), row_skew<V>(v_codes, v_stride, t + 9)};
      accumulate<Plan>(o, p, stage + K::kStageBytes, sub, v_skew, v_table);
    }
  }

  KV_UNROLL
  for (int n = 0; n < kColumns; ++n) KV_UNROLL
  for (int i = 0; i < 2; ++i) KV_UNROLL
  for (int mask = 4; mask < 32; mask <<= 1) d[n][i] += shfl_xor(d[n][i], mask);
  write_partial<Plan>(args, o, m, d);
}

}  // namespace kv
