// Tiles of the write path: 16 groups of 128 values a warp, transformed on the tensor cores.
//
// Lane 4 g + c holds the values 32 c .. 32 c + 31 of groups g and g + 8. A value's number has seven bits:  c c j j j h
// i.
//   H16 over the bits c c h i   one m16n8k16 product of halves for each j and each h of the result; +-1 and f16 values are exact,
//                               sums are fp32. The signs before the transform are folded into the +-1.
//   H8 over the bits j j j      butterflies in registers
// SPDX-License-Identifier: MIT
#pragma once
#include "args/attention.cuh"
#include "device/simt.cuh"
#include "formats/stored_row.cuh"

namespace kv {

constexpr int kTileRows = 16, kTileGroup = 128;

// What a format's numbers are where it does not say otherwise.
struct TileDefaults {
  static constexpr float kStep = 0x1p18f;  // integer steps of one standard deviation: a bucket is a quarter
  static constexpr int kLaneScaleStride =
      0;  // of a scale for each lane's values, all of them the group's; 0: one a group
  static constexpr int kPadAt = 0, kPadBytes = 0;  // zeros of a block
  static constexpr bool kZeroBytes = false;        // a row without a direction is all zero bytes
  static constexpr bool kRenormalises = false;     // decoding divides by the length of the group's entries
};

// The +-1 of H16 for each lane, as halves, with the signs before the transform (32 bits a lane), in shared memory:
// registers are short. Of j: one word for h = 0 of the contracted value and one for h = 1; the result's h = 1 takes the
// second negated.
constexpr int kHadamardBytes = 16 * 32 * 4;
KV_DEVICE void store_hadamard(SharedAddress at, u32 signs) {
  const int c = lane() & 3, n = lane() >> 2;
  const u32 parity = u32((c & n >> 1 & 1) ^ (c >> 1 & n >> 2));
  const u32 base = 0x3c003c00u ^ parity * 0x80008000u ^ u32(n & 1) << 31;
  if (warp() == 0) {
    KV_UNROLL
    for (int i = 0; i < 16; ++i)
      store_shared_u32(at + (i * 32 + lane()) * 4,
                       base ^ (signs >> 2 * i & 1) << 15 ^ (signs >> (2 * i + 1) & 1) << 31);
  }
}
KV_DEVICE u32 load_hadamard(SharedAddress at, int j, int h) {
  return load_shared_u32(at + ((2 * j + h) * 32 + lane()) * 4);
}

// y = the H16 part for two groups a lane; y[j][h]: values i = 0, 1 of group g, then of group g + 8.
KV_DEVICE void hadamard_products(float (&y)[8][2][4], const u32 (&x)[2][16], SharedAddress hadamard) {
  KV_UNROLL
  for (int j = 0; j < 8; ++j) {
    const u32 first = load_hadamard(hadamard, j, 0), second = load_hadamard(hadamard, j, 1);
    mma_16x8x16_first(y[j][0], x[0][2 * j], x[1][2 * j], x[0][2 * j + 1], x[1][2 * j + 1], first, second);
    mma_16x8x16_first(y[j][1], x[0][2 * j], x[1][2 * j], x[0][2 * j + 1], x[1][2 * j + 1], first, second ^ 0x80008000u);
  }
}
// The H8 part. Both together make sqrt(128) times the orthonormal transform.
KV_DEVICE void butterflies(float (&y)[8][2][4]) {
  KV_UNROLL
  for (int stride = 1; stride < 8; stride <<= 1) {
    KV_UNROLL
    for (int i = 0; i < 64; ++i) {
      const int j = i / 8, at = i % 8;
      if ((j & stride) == 0) {
        const float p = y[j][at / 4][at % 4], q = y[j + stride][at / 4][at % 4];
        y[j][at / 4][at % 4] = p + q;
        y[j + stride][at / 4][at % 4] = p - q;
      }
    }
  }
}

// Sums over the four lanes that hold a row, of rows g and g + 8.
KV_DEVICE void sum_over_row(float (&square)[2]) {
  KV_UNROLL
  for (int h = 0; h < 2; ++h) {
    square[h] += shfl_xor(square[h], 1);
    square[h] += shfl_xor(square[h], 2);
  }
}

// The squares of the lengths of rows g and g + 8, of numbers as transforms and products (device/wgmma.cuh) hold them.
KV_DEVICE void squared_lengths(float (&square)[2], const float (&y)[8][2][4]) {
  square[0] = square[1] = 0.f;
  KV_UNROLL
  for (int i = 0; i < 64; ++i) {
    const float v = y[i / 8][i / 4 % 2][i % 4];
    square[i / 2 % 2] = fma_rn(v, v, square[i / 2 % 2]);
  }
  sum_over_row(square);
}
KV_DEVICE void squared_lengths(float (&square)[2], const float (&y)[64]) {
  KV_UNROLL
  for (int half = 0; half < 2; ++half) {
    float even = 0.f, odd = 0.f;
    KV_UNROLL
    for (int i = 2 * half; i < 64; i += 4) even = fma_rn(y[i], y[i], even), odd = fma_rn(y[i + 1], y[i + 1], odd);
    square[half] = even + odd;
  }
  sum_over_row(square);
}

// Published quantizers take a group of this norm, or less, for zero. A NaN keeps its way into the scale.
KV_DEVICE bool has_direction(float square) {
  constexpr float kTiny = 1e-10f;
  return !(square <= kTiny * kTiny);
}

// A power of two between 1/2 and 1 over a row's length, or 0 if it has no direction; its reciprocal, or any number.
KV_DEVICE float power_below(float inverse_length) { return float_of(bits_of(inverse_length) & 0x7f800000u); }
KV_DEVICE float reciprocal_power(float power) { return float_of(0x7f000000u - bits_of(power)); }

// Where a row of a call stands.
struct TileRow {
  u32 token, head, sequence;
};
KV_DEVICE i64 row_in_x(const CodecArgs& args, const TileRow& row) {
  return row.sequence * args.x.sequence_stride + row.token * args.x.query_stride + row.head * args.x.head_stride;
}

// Sixteen rows of a call, or the `valid` ones that are left. Args: how many sequences, tokens, heads; and the share of
// a block.
struct Tile {
  u32 index;
  TileRow start;
  u32 valid;
  bool is_together;  // 16 tokens of one head
  template <class Args>
  KV_DEVICE static Tile at(const Args& args, u32 index) {
    const u32 tokens = args.tokens, heads = args.heads, count = args.tiles, known = index < count ? index : count - 1;
    TileRow start;
    u32 left;
    if (args.token_tiles > 0) {
      const u32 block = known / heads, sequence = block / args.token_tiles;
      start = {(block - sequence * args.token_tiles) * kTileRows, known - block * heads, sequence};
      left = tokens - start.token;
    } else {
      const u32 first = known * kTileRows, line = first / tokens;
      start = {first - line * tokens, line % heads, line / heads};
      left = u32(args.sequences) * heads * tokens - first;
    }
    const u32 valid = index >= count ? 0 : left < kTileRows ? left : kTileRows;
    return {index, start, valid, valid == kTileRows && start.token + kTileRows <= tokens};
  }
  // The tile `by` further on; steps: by / heads, by % heads. Mostly of the same sequence, which spares the divisions.
  template <class Args>
  KV_DEVICE Tile further(const Args& args, u32 by, u32 steps, u32 rest) const {
    const bool is_next = start.head + rest >= u32(args.heads);
    const u32 head = start.head + rest - (is_next ? args.heads : 0);
    const u32 token = start.token + (steps + is_next) * kTileRows;
    if (args.token_tiles == 0 || token + kTileRows > u32(args.tokens)) return at(args, index + by);
    return {index + by, {token, head, start.sequence}, kTileRows, true};
  }
  // Row i; behind the last valid one, that one.
  template <class Args>
  KV_DEVICE TileRow row(const Args& args, int i) const {
    if (is_together) return {start.token + i, start.head, start.sequence};
    TileRow at = start;
    at.token += u32(i) < valid ? i : valid > 0 ? valid - 1 : 0;
    while (at.token >= u32(args.tokens)) {
      at.token -= args.tokens;
      if (++at.head == u32(args.heads)) at.head = 0, ++at.sequence;
    }
    return at;
  }
};

// The lane's codes of a stored group.
template <class Plan>
KV_DEVICE u8* codes_at(const StoredRow& row, int group) {
  return row.codes + Plan::kCodesAt + group * i64(Plan::kCodeStride) + (lane() & 3) * Plan::kLaneStride;
}

// Where the lane's rows g and g + 8 of a tile begin in x.
KV_DEVICE void rows_in_x(i64 (&at)[2], const CodecArgs& args, const Tile& tile) {
  const int g = lane() >> 2;
  at[0] = row_in_x(args, tile.row(args, g));
  at[1] = tile.is_together ? at[0] + 8 * args.x.query_stride : row_in_x(args, tile.row(args, g + 8));
}

// The tiles of one warp. A block has those that follow each other; its warps take kMine each in turns, so that what is
// read and written at the same time is close: x mostly has the heads of a token next to each other.
template <class Plan, int kMine = 1>
struct TileTurns {
  u32 end, steps, rest;
  Tile tile;
  template <class Args>
  KV_DEVICE static TileTurns of(const Args& args) {
    const u32 begin = u32(block_x()) * args.block_tiles, end = begin + args.block_tiles;
    return {end < u32(args.tiles) ? end : u32(args.tiles), u32(kAll) / args.heads, u32(kAll) % args.heads,
            Tile::at(args, begin + warp() * kMine)};
  }
  KV_DEVICE bool has_tile() const { return tile.index < end; }
  // Warpgroups go on together, the last of them without rows where the first has some left: they multiply in turns.
  KV_DEVICE bool has_turn() const { return tile.index - warp() * kMine < end; }
  template <class Args>
  KV_DEVICE void advance(const Args& args) {
    tile = tile.further(args, kAll, steps, rest);
  }

 private:
  static constexpr int kAll = Plan::kWarps * kMine;
};

// A staged group of halves: four segments of 32 values, 80 bytes apart, so that neither the lanes that bring rows nor
// those that take segments meet in a bank.
constexpr int kSegmentPitch = 80, kStagePitch = 4 * kSegmentPitch, kTileStage = kTileRows * kStagePitch;
KV_DEVICE SharedAddress staged_chunk(SharedAddress stage, int row, int chunk) {
  return stage + row * kStagePitch + chunk / 4 * kSegmentPitch + chunk % 4 * 16;
}

}  // namespace kv
