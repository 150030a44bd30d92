// Encoding of bulk tiles: codes of up to 4 bits, packed and stored, with their scales.
//
// A code is found without a search. One fused multiply-add turns a value into an integer, with Plan::kStep steps to a
// standard deviation. The upper bits of the integer name a bucket of 2^16 steps, which holds at most one bound of the
// codebook. Adding the bucket's word carries into the code exactly if the value is not below that bound. The planner
// computes these words (buckets_of of generator/kernels/codec/plan.cpp). Each lane has a copy of the tables, so
// look-ups have no bank conflicts.
// SPDX-License-Identifier: MIT
#pragma once
#include "device/simt.cuh"
#include "kernels/codec/bulk_codes.cuh"
#include "kernels/codec/bulk_tile.cuh"
#include "formats/fields.cuh"
#include "formats/stored_row.cuh"

namespace kv {

constexpr int kBulkBuckets = 128;  // 64 on either side of 0

// Fills both tables from shared address 0 on. Entries are 256 bytes apart: 128 bytes with 32 copies of the word of
// bucket i, then 128 bytes with 32 copies of a sum of squares. The sum is of the two entries of the codebook that the
// nibbles of byte i select, in steps of 1 / kSquareStep.
template <class Plan>
KV_DEVICE void fill_encoding_tables() {
  KV_NO_UNROLL
  for (int i = thread(); i < 256 * 32; i += Plan::kThreads) {
    const int entry = i / 32, copy = i % 32 * 4, last = (1 << Plan::kBits) - 1;
    const float low = Plan::value(entry & last), high = Plan::value(entry >> 4 & last);
    if (entry < kBulkBuckets) store_shared_u32(entry * 256 + copy, Plan::bucket(entry));
    store_shared_u32(entry * 256 + 128 + copy, u32((low * low + high * high) * Plan::kSquareStep + 0.5f));
  }
}

// The codes of eight neighbouring values, one a nibble. factor turns the values into steps; mine is the byte offset of
// the lane's copy of the tables.
KV_DEVICE u32 encode_eight(const float (&y)[8], float factor, u32 mine) {
  constexpr float kZero = 0x1.8p23f;  // adding it leaves the nearest integer in the low bits of the sum
  u32 sum[8];
  KV_UNROLL
  for (int m = 0; m < 8; ++m) {
    const u32 bits = bits_of(fma_rn(y[m], factor, kZero));
    sum[m] = bits + load_table<0>(permute(bits, mine, 0x5524));
  }
  const u32 even = permute(permute(sum[0], sum[2], 0x0062), permute(sum[4], sum[6], 0x0062), 0x5410);
  const u32 odd = permute(permute(sum[1], sum[3], 0x0062), permute(sum[5], sum[7], 0x0062), 0x5410);
  return odd * 16 + even;
}

// Turns eight cells, numbered in ascending order, into codes of sign and magnitude: the top bit is inverted, and below
// 0 the other bits count downwards.
template <int kBits>
KV_DEVICE u32 sign_magnitude_eight(u32 cells) {
  constexpr u32 kTop = 0x11111111u << (kBits - 1);
  const u32 negative = ~cells & kTop;
  return cells ^ (kTop | (negative - (negative >> (kBits - 1))));
}

// Packs and stores the lane's 32 codes. `to` is aligned to kCodeUnit bytes.
template <class Plan>
KV_DEVICE void store_codes(u8* to, const u32 (&nibbles)[4]) {
  using Packing = typename Plan::Packing;
  constexpr int kBits = Plan::kBits;
  u32 codes[4], words[kBits] = {};
  KV_UNROLL
  for (int i = 0; i < 4; ++i) codes[i] = Plan::kIsSignMagnitude ? sign_magnitude_eight<kBits>(nibbles[i]) : nibbles[i];
  Packing::pack(words, codes);
  if constexpr (Plan::kCodeUnit == 16 && kBits == 4)
    store_u128(to, words[0], words[1], words[2], words[3]);
  else
    KV_UNROLL
  for (int i = 0; i < kBits; ++i)
    store_bytes<4, (Plan::kCodeUnit < 4 ? Plan::kCodeUnit : 4)>(to + Packing::template word_at<Plan>(i), words[i]);
}

// The sum of squares of the codebook's entries that a row's codes select, 32 codes in each of four lanes. Sums are
// integers, because an instruction adds three of them.
template <class Plan>
KV_DEVICE float squared_length(const u32 (&nibbles)[4], u32 mine) {
  u32 length = 0;
  KV_UNROLL
  for (int byte = 0; byte < 16; ++byte)
    length += load_table<128>(permute(nibbles[byte / 4], mine, 0x5504u | u32(byte % 4) << 4));
  length += shfl_xor(length, 1);
  length += shfl_xor(length, 2);
  return float(length) * (1.f / Plan::kSquareStep);
}

// One encoded group of a row: the lane's quarter of its codes, and what its scale follows from.
struct EncodedRow {
  u32 nibbles[4];     // the lane's 32 codes, one a nibble
  float norm,         // the length of the group
      length;         // the squared length of the chosen entries
  bool is_direction;  // see has_direction
};
KV_DEVICE EncodedRow one_of(bool is_first, const EncodedRow& first, const EncodedRow& second) {
  EncodedRow row;
  KV_UNROLL
  for (int i = 0; i < 4; ++i) row.nibbles[i] = is_first ? first.nibbles[i] : second.nibbles[i];
  row.norm = is_first ? first.norm : second.norm, row.length = is_first ? first.length : second.length;
  row.is_direction = is_first ? first.is_direction : second.is_direction;
  return row;
}

// Formats with kZeroBytes store zeros for a row without a direction; others store the codes of 0.
template <class Plan>
KV_DEVICE void clear_if_zero(EncodedRow& row) {
  if constexpr (Plan::kZeroBytes) {
    KV_UNROLL
    for (int i = 0; i < 4; ++i) row.nibbles[i] = row.is_direction ? row.nibbles[i] : 0u;
  }
}

// Stores a group's scale, and the padding beside it. One lane of four calls it, or each lane for its own block.
template <class Plan>
KV_DEVICE void store_scale(u8* scales, int group, const EncodedRow& row) {
  u8* const block = scales + group * i64(Plan::kScaleStride) + (lane() & 3) * Plan::kLaneScaleStride;
  *reinterpret_cast<u16*>(block + Plan::kScaleAt) = f16_from_f32(!row.is_direction  ? 0.f
                                                                 : Plan::kIsMatched ? row.norm * rsqrt_fast(row.length)
                                                                                    : row.norm);
  if constexpr (Plan::kPadBytes > 0)
    store_bytes<Plan::kPadBytes, unit_of<2>(Plan::kPadAt, Plan::kPadBytes, Plan::kScaleStride)>(block + Plan::kPadAt,
                                                                                                0);
}

template <class Plan>
KV_DEVICE void store_row(const StoredRow& to, int group, const EncodedRow& row) {
  store_codes<Plan>(codes_at<Plan>(to, group), row.nibbles);
  if (Plan::kLaneScaleStride > 0 || (lane() & 3) == 0) store_scale<Plan>(to.scales, group, row);
}

// Stores one group of the lane's rows g and g + 8. Mostly the rows are tokens of one head, without slots. Then the
// address of the second follows from that of the first.
template <class Plan>
KV_DEVICE void store_rows(const CodecArgs& args, const Tile& tile, int group, const EncodedRow (&rows)[2]) {
  using F = typename Plan::F;
  const int g = lane() >> 2, c = lane() & 3;
  if (tile.is_together && !args.slots) {
    const BulkRow& at = tile.start;
    const i64 token = args.first_token + at.token + g;
    const StoredRow first = stored_row<F>(args.side, at.sequence, at.head, token),
                    second = stored_row_behind<F>(first, args.side, at.sequence, at.head, token, 8);
    store_codes<Plan>(codes_at<Plan>(first, group), rows[0].nibbles);
    store_codes<Plan>(codes_at<Plan>(second, group), rows[1].nibbles);
    if constexpr (Plan::kLaneScaleStride > 0) {
      store_scale<Plan>(first.scales, group, rows[0]);
      store_scale<Plan>(second.scales, group, rows[1]);
    } else if (c < 2) {
      store_scale<Plan>(c == 0 ? first.scales : second.scales, group, one_of(c == 0, rows[0], rows[1]));
    }
    return;
  }
  KV_NO_UNROLL
  for (int i = g; i < int(tile.valid); i += 8) {
    const BulkRow at = tile.row(args, i);
    const i64 slot = args.slots ? args.slots[i64(at.sequence) * args.tokens + at.token] : args.first_token + at.token;
    if (slot < 0) continue;
    store_row<Plan>(stored_row<F>(args.side, at.sequence, at.head, slot), group, one_of(i == g, rows[0], rows[1]));
  }
}

// Sets a mask that applies the signs behind the transform to packed codes: in a symmetric codebook the code of -v has
// all bits of the code of v inverted.
template <class Plan>
KV_DEVICE void fill_mirror(u32 (&mirror)[4]) {
  const u32 signs = Plan::post_signs(lane() & 3);
  KV_UNROLL
  for (int i = 0; i < 32; ++i) mirror[i / 8] |= (signs >> i & 1) * ((1u << Plan::kBits) - 1) << i % 8 * 4;
}

// Encodes one row. square: its squared length. eight(e, v): gives the lane's values 8 e .. 8 e + 7. factor: v times
// this, divided by the row's length, is in standard deviations.
template <class Plan, class Eight>
KV_DEVICE void encode_row(EncodedRow& row, float square, float factor, const Eight& eight) {
  const float inverse = rsqrt_fast(square);
  const bool is_direction = has_direction(square);
  const float steps = is_direction ? Plan::kStep * factor * inverse : 0.f;
  KV_UNROLL
  for (int e = 0; e < 4; ++e) {
    float v[8];
    eight(e, v);
    row.nibbles[e] = encode_eight(v, steps, lane() * 4);
  }
  row.norm = square * inverse, row.is_direction = is_direction;
  clear_if_zero<Plan>(row);
}

// Encodes a tile that kernels/codec/bulk_tile.cuh has transformed. y times unit is sqrt(128) times as long as the row,
// so divided by the row's norm it is in standard deviations.
template <class Plan>
KV_DEVICE void encode_tile(EncodedRow (&rows)[2], const float (&y)[8][2][4], const float (&square)[2],
                           const float (&unit)[2], const u32 (&mirror)[4]) {
  KV_UNROLL
  for (int half = 0; half < 2; ++half) {
    EncodedRow& row = rows[half];
    encode_row<Plan>(row, square[half], unit[half], [&](int e, float(&v)[8]) {
      KV_UNROLL
      for (int m = 0; m < 8; ++m) v[m] = y[2 * e + m / 4][m / 2 % 2][2 * half + m % 2];
    });
    KV_UNROLL
    for (int e = 0; e < 4; ++e) row.nibbles[e] ^= row.is_direction ? mirror[e] : 0u;
    row.length = squared_length<Plan>(row.nibbles, lane() * 4);
  }
}

}  // namespace kv
