// Bulk tiles: how a warp of the bulk codec holds, transforms and addresses 16 rows at once.
//
// A group is 128 values of a row that are rotated and scaled together. A bulk tile is one group of each of 16 rows.
// Lane 4 g + c of a warp holds the values 32 c .. 32 c + 31 of rows g and g + 8.
//
// The Walsh-Hadamard transform of a group is the Kronecker product of H16 and H8. The index of a value in its group has
// seven bits, c c j j j h i from the highest down:
//   H16 over the bits c c h i   One product m16n8k16 of fp16 for each j and each h of the result (hadamard_products).
//                               +-1 and f16 values are exact, and sums are fp32. The signs before the transform are
//                               folded into the +-1.
//   H8 over the bits j j j      Additions and subtractions in registers (butterflies).
//
// Tile says which rows of a call a bulk tile has. BulkTileLoop gives blocks and warps their bulk tiles.
// SPDX-License-Identifier: MIT
#pragma once
#include "args/attention.cuh"
#include "device/simt.cuh"
#include "formats/stored_row.cuh"

namespace kv {

constexpr int kBulkRows = 16, kBulkGroup = 128;

// Constants of a format that states nothing else. The generator derives each Plan from it.
struct BulkDefaults {
  // Integer steps of one standard deviation, by which values are encoded. A bucket has 2^16 steps: here a quarter.
  static constexpr float kStep = 0x1p18f;
  // Bytes from the scale of one lane's values to that of the next lane's, in formats whose blocks repeat the scale of
  // the group; 0: a group stores one scale.
  static constexpr int kLaneScaleStride = 0;
  static constexpr int kPadAt = 0, kPadBytes = 0;  // zero padding of a block: its offset and length in bytes
  static constexpr bool kZeroBytes = false;        // a row without a direction is stored as zero bytes
  static constexpr bool kRenormalises = false;     // decoding divides by the length of the group's entries
};

// store_hadamard writes each lane's +-1 of H16 as fp16, multiplied by the signs before the transform. `signs` has a bit
// for each of the lane's 32 values; a set bit is -1. The words are in shared memory because registers are scarce. There
// are two for each j: one for the contracted values of h = 0 and one for those of h = 1. Results of h = 1 take the
// second word negated.
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

// The H16 factor of the transform of two rows a lane. x holds the lane's values of rows g and g + 8 as half2. y[j][h]
// holds the results i = 0, 1 of row g, then those of row g + 8.
KV_DEVICE void hadamard_products(float (&y)[8][2][4], const u32 (&x)[2][16], SharedAddress hadamard) {
  KV_UNROLL
  for (int j = 0; j < 8; ++j) {
    const u32 first = load_hadamard(hadamard, j, 0), second = load_hadamard(hadamard, j, 1);
    mma_16x8x16_first(y[j][0], x[0][2 * j], x[1][2 * j], x[0][2 * j + 1], x[1][2 * j + 1], first, second);
    mma_16x8x16_first(y[j][1], x[0][2 * j], x[1][2 * j], x[0][2 * j + 1], x[1][2 * j + 1], first, second ^ 0x80008000u);
  }
}
// The H8 factor. Both factors together make sqrt(128) times the orthonormal transform.
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

// Adds square[0] (row g) and square[1] (row g + 8) over the four lanes that hold these rows.
KV_DEVICE void sum_over_row(float (&square)[2]) {
  KV_UNROLL
  for (int h = 0; h < 2; ++h) {
    square[h] += shfl_xor(square[h], 1);
    square[h] += shfl_xor(square[h], 2);
  }
}

// The squared lengths of rows g and g + 8. The first overload takes values as hadamard_products leaves them, the second
// as the products of device/wgmma.cuh do.
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

// Whether a group has a direction. Published quantizers take a group of norm 1e-10 or less for zero. A group with a NaN
// has a direction, so that the NaN reaches the stored scale.
KV_DEVICE bool has_direction(float square) {
  constexpr float kTiny = 1e-10f;
  return !(square <= kTiny * kTiny);
}

// power_below: the largest power of two that is at most inverse_length. A row that is multiplied by it has a length
// between 1/2 and 1. Callers use 0 instead for a row without a direction; the reciprocal of 0 is then any number.
KV_DEVICE float power_below(float inverse_length) { return float_of(bits_of(inverse_length) & 0x7f800000u); }
KV_DEVICE float reciprocal_power(float power) { return float_of(0x7f000000u - bits_of(power)); }

// The place of a row in a call.
struct BulkRow {
  u32 token, head, sequence;
};
KV_DEVICE i64 row_in_x(const CodecArgs& args, const BulkRow& row) {
  return row.sequence * args.x.sequence_stride + row.token * args.x.query_stride + row.head * args.x.head_stride;
}

// The sixteen rows of one bulk tile. Args gives the numbers of sequences, tokens and heads of the call, and how its
// tiles are numbered (CodecArgs of args/attention.cuh).
struct Tile {
  u32 index;         // the tile's number in the call
  BulkRow start;     // its first row
  u32 valid;         // how many of its rows exist: 16, fewer at the end of a call, 0 behind the end
  bool is_together;  // the rows are 16 tokens of one head
  template <class Args>
  KV_DEVICE static Tile at(const Args& args, u32 index) {
    const u32 tokens = args.tokens, heads = args.heads, count = args.tiles,
              existing = index < count ? index : count - 1;
    BulkRow start;
    u32 left;
    if (args.token_tiles > 0) {
      const u32 block = existing / heads, sequence = block / args.token_tiles;
      start = {(block - sequence * args.token_tiles) * kBulkRows, existing - block * heads, sequence};
      left = tokens - start.token;
    } else {
      const u32 first = existing * kBulkRows, line = first / tokens;
      start = {first - line * tokens, line % heads, line / heads};
      left = u32(args.sequences) * heads * tokens - first;
    }
    const u32 valid = index >= count ? 0 : left < kBulkRows ? left : kBulkRows;
    return {index, start, valid, valid == kBulkRows && start.token + kBulkRows <= tokens};
  }
  // The tile that is `by` further on. The caller passes steps = by / heads and rest = by % heads. Mostly the tile is of
  // the same sequence, and then no division is needed.
  template <class Args>
  KV_DEVICE Tile further(const Args& args, u32 by, u32 steps, u32 rest) const {
    const bool is_next = start.head + rest >= u32(args.heads);
    const u32 head = start.head + rest - (is_next ? args.heads : 0);
    const u32 token = start.token + (steps + is_next) * kBulkRows;
    if (args.token_tiles == 0 || token + kBulkRows > u32(args.tokens)) return at(args, index + by);
    return {index + by, {token, head, start.sequence}, kBulkRows, true};
  }
  // Row i, or the last valid row if i lies behind it.
  template <class Args>
  KV_DEVICE BulkRow row(const Args& args, int i) const {
    if (is_together) return {start.token + i, start.head, start.sequence};
    BulkRow at = start;
    at.token += u32(i) < valid ? i : valid > 0 ? valid - 1 : 0;
    while (at.token >= u32(args.tokens)) {
      at.token -= args.tokens;
      if (++at.head == u32(args.heads)) at.head = 0, ++at.sequence;
    }
    return at;
  }
};

// The address of the lane's codes of a stored group.
template <class Plan>
KV_DEVICE u8* codes_at(const StoredRow& row, int group) {
  return row.codes + Plan::kCodesAt + group * i64(Plan::kCodeStride) + (lane() & 3) * Plan::kLaneStride;
}

// The elements of x at which the lane's rows g and g + 8 of a tile begin.
KV_DEVICE void rows_in_x(i64 (&at)[2], const CodecArgs& args, const Tile& tile) {
  const int g = lane() >> 2;
  at[0] = row_in_x(args, tile.row(args, g));
  at[1] = tile.is_together ? at[0] + 8 * args.x.query_stride : row_in_x(args, tile.row(args, g + 8));
}

// The loop of one warp over its bulk tiles. A block has block_tiles consecutive tiles. Its warps take kMine tiles each
// and then go on behind the last warp, so that what is read and written at the same time is close together: x mostly
// has the heads of a token next to each other.
template <class Plan, int kMine = 1>
struct BulkTileLoop {
  u32 end,    // the first tile behind those of the block
      steps,  // kAll / heads and
      rest;   // kAll % heads, for Tile::further
  Tile tile;  // the warp's present tile, the first of kMine
  template <class Args>
  KV_DEVICE static BulkTileLoop of(const Args& args) {
    const u32 begin = u32(block_x()) * args.block_tiles, end = begin + args.block_tiles;
    return {end < u32(args.tiles) ? end : u32(args.tiles), u32(kAll) / args.heads, u32(kAll) % args.heads,
            Tile::at(args, begin + warp() * kMine)};
  }
  KV_DEVICE bool has_tile() const { return tile.index < end; }
  // Whether the block's first warp has a tile left. Warpgroups loop on this condition: they multiply one after the
  // other (device/wgmma.cuh), so each of them goes on until the first one is done, at the end without rows.
  KV_DEVICE bool block_has_tile() const { return tile.index - warp() * kMine < end; }
  template <class Args>
  KV_DEVICE void advance(const Args& args) {
    tile = tile.further(args, kAll, steps, rest);
  }

 private:
  static constexpr int kAll = Plan::kWarps * kMine;  // tiles that the warps of a block take at a time
};

// A staged group of 2-byte values is four segments of 32 values, 80 bytes apart. With this pitch there are no bank
// conflicts, neither for lanes that copy whole rows nor for lanes that read their segments. A chunk is 16 bytes.
constexpr int kSegmentPitch = 80, kStagePitch = 4 * kSegmentPitch, kBulkStage = kBulkRows * kStagePitch;
KV_DEVICE SharedAddress staged_chunk(SharedAddress stage, int row, int chunk) {
  return stage + row * kStagePitch + chunk / 4 * kSegmentPitch + chunk % 4 * 16;
}

}  // namespace kv
