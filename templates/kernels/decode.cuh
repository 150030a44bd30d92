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
// A warp works alone on 16 or 32 tokens at a time: stage, score, soften, accumulate. No block barrier stands in the
// loop. Softmax is base 2 in fp32 with a stale maximum: it is only renewed, by one vote of the warp, when a score
// exceeds it by kSlack. Probabilities are fp16, shifted by kBias powers of two into the middle of its range; the shift
// is in numerator and denominator alike. Block scales of V multiply them in fp16 too, relative to the largest scale seen.
// SPDX-License-Identifier: MIT
#pragma once
#include "core/args.cuh"
#include "core/pairs.cuh"
#include "core/queries.cuh"
#include "core/simt.cuh"
#include "core/stage.cuh"

namespace kv {

constexpr float kMasked = -1e30f;  // the score of a token that is not seen
constexpr float kFloor = -1e29f;   // the maximum before any token: above kMasked, so masked tokens weigh 2^-huge = 0
constexpr float kBias = 8.f;   // probabilities times 2^8: far from fp16's subnormals, and with kSlack from its largest
constexpr float kSlack = 6.f;  // powers of two that a probability may exceed 1 by before the maximum is renewed

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

// Running softmax of the lane's columns: maximum (base 2, stale by up to kSlack) and the lane's share of the denominator.
template <class Plan>
struct Softmax {
  float top[Plan::kColumnBlocks][2], sum[Plan::kColumnBlocks][2];
};

// s = K Q^T for kSubtiles x 16 tokens of the staged tile from `first` on, in the accumulator layout (simt.cuh), not yet times the
// softmax scale. skew: of the lane's rows g and g + 8 of each subtile.
template <class Plan>
KV_DEVICE void score(Scores<Plan> (&s)[Plan::kSubtiles], SharedAddress stage, int first,
                     const u32 (&skew)[Plan::kSubtiles][2], const Queries<Plan>& queries, Table table) {
  using K = typename Plan::K;
  constexpr int kSteps = K::kRunCodes / 4;  // k16 steps a run: four lanes bring four codes each
  const int g = lane() >> 2, c = lane() & 3;
  KV_UNROLL_BY(Plan::kHoldQueries ? K::kGroups
                                  : 2)  // registers cannot be indexed; else two groups are enough, and compile sooner
  for (int group = 0; group < K::kGroups; ++group) {
    KV_UNROLL
    for (int sub = 0; sub < Plan::kSubtiles; ++sub) {
      const int row = first + sub * 16 + g;
      Scores<Plan> sum[Plan::kQueryParts] = {};  // a chain of products each
      KV_UNROLL
      for (int run = 0; run < K::kRuns; ++run) {
        u32 low[K::kRunWords], high[K::kRunWords], a[K::kRunCodes / 2], b[K::kRunCodes / 2];
        load_run<K>(stage + row * K::kPitch + skew[sub][0], group, run, c, low);
        load_run<K>(stage + (row + 8) * K::kPitch + skew[sub][1], group, run, c, high);
        K::Run::row(low, a, table);
        K::Run::row(high, b, table);
        KV_UNROLL
        for (int i = 0; i < kSteps * Plan::kColumnBlocks; ++i) {
          const int step = i / Plan::kColumnBlocks, n = i % Plan::kColumnBlocks;
          u32 q[Queries<Plan>::kWords];
          queries.get((group * K::kRuns + run) * kSteps * Plan::kColumnBlocks + i, q);
          KV_UNROLL
          for (int part = 0; part < Plan::kQueryParts; ++part)
            mma_16x8x16(sum[part][n], a[2 * step], b[2 * step], a[2 * step + 1], b[2 * step + 1], q[2 * part],
                        q[2 * part + 1]);
        }
      }
      float scale[2] = {1.f, 1.f};
      if constexpr (K::kHasScale) {
        scale[0] = f32_from_f16(load_scale<K>(stage, skew[sub][0], row, group));
        scale[1] = f32_from_f16(load_scale<K>(stage, skew[sub][1], row + 8, group));
      }
      KV_UNROLL
      for (int i = 0; i < 4 * Plan::kColumnBlocks; ++i) {
        float total = sum[0][i / 4][i % 4];
        if constexpr (Plan::kQueryParts == 2) total += sum[1][i / 4][i % 4];
        s[sub][i / 4][i % 4] = total * scale[i % 4 / 2] + (group > 0 ? s[sub][i / 4][i % 4] : 0.f);
      }
    }
  }
}

// Scores to probabilities, as B fragments of P^T: scale, mask, renew the maximum if any lane asks for it, exponentiate, transpose.
template <class Plan>
KV_DEVICE void soften(u32 (&p)[Plan::kSubtiles][Plan::kColumnBlocks][2], Scores<Plan> (&s)[Plan::kSubtiles],
                      Softmax<Plan>& softmax, Outputs<Plan>& o, float scale, int token, int end, int length) {
  constexpr int kTokens = Plan::kSubtiles * 16, kScores = 4 * Plan::kColumnBlocks;
  const int g = lane() >> 2, c = lane() & 3;
  const bool needs_mask = token + kTokens > end || Plan::Feature::cuts(token + kTokens - 1, length);
  bool grown = false;
  KV_UNROLL
  for (int sub = 0; sub < Plan::kSubtiles; ++sub) {
    KV_UNROLL
    for (int i = 0; i < kScores; ++i) {
      const int n = i / 4, j = i % 4;
      float& score = s[sub][n][j];
      score *= scale;
      if (needs_mask) {
        const int t = token + sub * 16 + g + 8 * (j >> 1), row = n * 8 + 2 * c + (j & 1);
        if (t >= end || !Plan::Feature::sees(row / Plan::kGroup, t, length)) score = kMasked;
      }
      grown |= score > softmax.top[n][j & 1] + kSlack;
    }
  }
  if (any(grown)) {
    KV_UNROLL
    for (int i = 0; i < 2 * Plan::kColumnBlocks; ++i) {
      const int n = i / 2, j = i % 2;
      float top = softmax.top[n][j];
      KV_UNROLL
      for (int sub = 0; sub < Plan::kSubtiles; ++sub) top = larger(top, larger(s[sub][n][j], s[sub][n][j + 2]));
      KV_UNROLL
      for (int mask = 4; mask < 32; mask <<= 1) top = larger(top, shfl_xor(top, mask));
      const float keep = exp2_fast(softmax.top[n][j] - top);
      softmax.top[n][j] = top;
      softmax.sum[n][j] *= keep;
      KV_UNROLL
      for (int tile = 0; tile < Plan::kHeadDim / 16; ++tile) o[n][tile][j] *= keep, o[n][tile][j + 2] *= keep;
    }
  }
  KV_UNROLL
  for (int i = 0; i < Plan::kSubtiles * Plan::kColumnBlocks; ++i) {
    const int sub = i / Plan::kColumnBlocks, n = i % Plan::kColumnBlocks;
    float e[4];
    KV_UNROLL
    for (int j = 0; j < 4; ++j) {
      e[j] = exp2_fast(s[sub][n][j] - softmax.top[n][j & 1] + kBias);
      softmax.sum[n][j & 1] += e[j];
    }
    p[sub][n][0] = transpose_8x8(pack_f16x2(e[0], e[1]));
    p[sub][n][1] = transpose_8x8(pack_f16x2(e[2], e[3]));
  }
}

// 2^log2 as a half, for -24 <= log2 <= 16 (16: the bits of infinity, above every finite half).
KV_DEVICE u32 half_power(int log2) { return log2 >= -14 ? u32(log2 + 15) << 10 : 1u << (log2 + 24); }

// Block scales of V relative to 2^log2, the same in the whole warp and at least as large as every scale seen: probability times
// scale then stays inside fp16 whatever the size of V. o holds sums relative to it.
template <class Plan>
struct ValueScales {
  static constexpr int kLeast = -13, kMost = 16;
  int log2 = kLeast;
  // Of the tokens 2c, 2c + 1 and 2c + 8, 2c + 9 of each group and subtile, two halves a word.
  u32 words[Plan::V::kGroups][Plan::kSubtiles][2];

  KV_DEVICE void load(Outputs<Plan>& o, SharedAddress stage, int first, const u32 (&skew)[Plan::kSubtiles][4]) {
    using V = typename Plan::V;
    const u32 limit = half_power(log2) * 0x10001u | 0x80008000u;
    u32 fits = 0x80008000u;  // halves compare as integers; the top bits survive where limit >= |scale|
    KV_UNROLL
    for (int i = 0; i < V::kGroups * Plan::kSubtiles * 2; ++i) {
      const int group = i / (2 * Plan::kSubtiles), sub = i / 2 % Plan::kSubtiles, high = i % 2;
      const int token = first + sub * 16 + 2 * (lane() & 3) + 8 * high;
      const u32 word = load_scale<V>(stage, skew[sub][2 * high], token, group) |
                       load_scale<V>(stage, skew[sub][2 * high + 1], token + 1, group) << 16;
      words[group][sub][high] = word;
      fits &= limit - (word & 0x7fff7fffu);
    }
    if (any((fits & 0x80008000u) != 0x80008000u)) renew(o);
  }

  KV_DEVICE u32 relative(int group, int sub, int high) const {
    return mul_f16x2(words[group][sub][high], half_power(-log2) * 0x10001u);
  }

 private:
  KV_DEVICE void renew(Outputs<Plan>& o) {
    u32 largest = 0;
    KV_UNROLL
    for (int i = 0; i < Plan::V::kGroups * Plan::kSubtiles * 4; ++i) {
      const u32 half = words[i / (4 * Plan::kSubtiles)][i / 4 % Plan::kSubtiles][i / 2 % 2] >> 16 * (i % 2) & 0x7fffu;
      largest = half > largest ? half : largest;
    }
    KV_UNROLL
    for (int mask = 16; mask > 0; mask >>= 1) {
      const u32 other = shfl_xor(largest, mask);
      largest = other > largest ? other : largest;
    }
    const int needed = int(largest >> 10) - 14, renewed = needed < log2 ? log2 : needed > kMost ? kMost : needed;
    const float keep = exp2_fast(float(log2 - renewed));
    log2 = renewed;
    KV_UNROLL
    for (int i = 0; i < Plan::kColumnBlocks * Plan::kHeadDim / 4; ++i)
      o[i / (Plan::kHeadDim / 4)][i / 4 % (Plan::kHeadDim / 16)][i % 4] *= keep;
  }
};

// o += V^T P^T for the same tokens. skew: of the lane's rows 2c, 2c + 1, 2c + 8, 2c + 9 of each subtile.
template <class Plan>
KV_DEVICE void accumulate(Outputs<Plan>& o, ValueScales<Plan>& scales,
                          const u32 (&p)[Plan::kSubtiles][Plan::kColumnBlocks][2], SharedAddress stage, int first,
                          const u32 (&skew)[Plan::kSubtiles][4], Table table) {
  using V = typename Plan::V;
  constexpr int kTiles = V::kRunCodes / 2;  // m16 tiles a run: eight lanes bring two codes each
  const int g = lane() >> 2, c = lane() & 3;
  if constexpr (V::kHasScale) scales.load(o, stage, first, skew);
  KV_UNROLL
  for (int group = 0; group < V::kGroups; ++group) {
    KV_UNROLL
    for (int sub = 0; sub < Plan::kSubtiles; ++sub) {
      const int row = first + sub * 16 + 2 * c;
      u32 b[Plan::kColumnBlocks][2];
      KV_UNROLL
      for (int n = 0; n < Plan::kColumnBlocks; ++n) b[n][0] = p[sub][n][0], b[n][1] = p[sub][n][1];
      if constexpr (V::kHasScale) {
        const u32 low = scales.relative(group, sub, 0), high = scales.relative(group, sub, 1);
        KV_UNROLL
        for (int n = 0; n < Plan::kColumnBlocks; ++n)
          b[n][0] = mul_f16x2(b[n][0], low), b[n][1] = mul_f16x2(b[n][1], high);
      }
      KV_UNROLL
      for (int run = 0; run < V::kRuns; ++run) {
        u32 w[4][V::kRunWords], low[V::kRunCodes], high[V::kRunCodes];
        KV_UNROLL
        for (int i = 0; i < 4; ++i)
          load_run<V>(stage + (row + (i & 1) + 8 * (i >> 1)) * V::kPitch + skew[sub][i], group, run, g, w[i]);
        V::Run::column(w[0], w[1], low, table);
        V::Run::column(w[2], w[3], high, table);
        KV_UNROLL
        for (int i = 0; i < kTiles * Plan::kColumnBlocks; ++i) {
          const int tile = i / Plan::kColumnBlocks, n = i % Plan::kColumnBlocks;
          mma_16x8x16(o[n][(group * V::kRuns + run) * kTiles + tile], low[2 * tile], low[2 * tile + 1], high[2 * tile],
                      high[2 * tile + 1], b[n][0], b[n][1]);
        }
      }
    }
  }
}

// Warps of the block meet in shared memory; the block's partial result goes out, dimensions in their natural
// order.
template <class Plan>
KV_DEVICE void write_partial(const AttentionArgs& args, const Outputs<Plan>& o, const Softmax<Plan>& softmax,
                             float unit) {
  constexpr int kPitch = Plan::kHeadDim + 4, kRows = Plan::kRows;
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
      for (int half = 0; half < Plan::kHeadDim / 8; ++half)
        sums[at * kPitch + half * 8 + g] = o[n][half / 2][half % 2 * 2 + j] * unit;
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
    args.partial[(first + row) * Plan::kHeadDim + Plan::value_order(at)] = sum;
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
  static_assert(K::kGroups * K::kRuns * K::kRunCodes * 4 == Plan::kHeadDim, "K runs must cover the row");
  static_assert(V::kGroups * V::kRuns * V::kRunCodes * 8 == Plan::kHeadDim, "V runs must cover the row");

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
  const Table k_table{u32(lane() % K::kTableCopies * 4)};
  const Table v_table{u32(lane() % V::kTableCopies * 4)};
  const i64 k_stride = args.k.codes_token_stride, v_stride = args.v.codes_token_stride;

  if constexpr (K::kOwnsTable || V::kOwnsTable) check_tables();
  load_queries<Plan>(Plan::kQueriesAt, args);
  if constexpr (K::kOwnsTable) fill_table<K>();
  if constexpr (V::kOwnsTable) fill_table<V>();
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
      score<Plan>(s, stage, first, k_skew, queries, k_table);
      soften<Plan>(p, s, softmax, o, scale, token + first, end, length);
      accumulate<Plan>(o, value_scales, p, stage + K::kStageBytes, first, v_skew, v_table);
    }
  }

  KV_UNROLL
  for (int i = 0; i < 2 * Plan::kColumnBlocks; ++i) {
    KV_UNROLL
    for (int mask = 4; mask < 32; mask <<= 1) softmax.sum[i / 2][i % 2] += shfl_xor(softmax.sum[i / 2][i % 2], mask);
  }
  write_partial<Plan>(args, o, softmax, V::kHasScale ? V::kUnit * exp2_fast(float(value_scales.log2)) : V::kUnit);
}

}  // namespace kv
