// Decoding of bulk tiles: packed codes of up to 4 bits become half2, and the tensor cores transform them back.
//
// An entry of the codebook is held as one fp16 term, or as two (a high term and its rest), which are exact to 2^-23 of
// the largest entry. The planner decides which (Plan::kCodeTerms). A table in shared memory has an entry for each two
// neighbouring codes (kernels/codec/bulk_codes.cuh) with a copy for each lane, so one load without bank conflicts
// decodes two codes.
// SPDX-License-Identifier: MIT
#pragma once
#include "device/simt.cuh"
#include "kernels/codec/bulk_codes.cuh"
#include "kernels/codec/bulk_tile.cuh"
#include "formats/stored_row.cuh"

namespace kv {

// Bytes of a lane's copy of an entry. Both words are one load, which costs half of two loads.
template <class Plan>
constexpr int kPairBytes = 4 * Plan::kCodeTerms;

// The shared address of the table: Plan::kTableAt if the plan has other tables too, else 0.
template <class Plan>
constexpr SharedAddress decoding_table_at() {
  if constexpr (requires { Plan::kTableAt; })
    return Plan::kTableAt;
  else
    return 0;
}

// Fills the table. Entries are 256 bytes apart and have kPairBytes bytes for each of 32 lanes: the high terms of both
// values, then their rests if kCodeTerms is 2. They are in units of Plan::kUnit.
template <class Plan>
KV_DEVICE void fill_decoding_table() {
  using Packing = typename Plan::Packing;
  KV_NO_UNROLL
  for (int i = thread(); i < Packing::kEntries * 32; i += Plan::kThreads) {
    const float first = Plan::value(Packing::first(i / 32)) / Plan::kUnit,
                second = Plan::value(Packing::second(i / 32)) / Plan::kUnit;
    const u32 high = pack_f16x2(first, second);
    const SharedAddress at = decoding_table_at<Plan>() + i / 32 * 256 + i % 32 * kPairBytes<Plan>;
    store_shared_u32(at, high);
    if constexpr (Plan::kCodeTerms == 2)
      store_shared_u32(at + 4, pack_f16x2(first - f32_from_f16(high & 0xffffu), second - f32_from_f16(high >> 16)));
  }
}

// Loads the values 2 k and 2 k + 1 as half2: high terms, then rests. mine is the byte offset of the lane's copy.
template <class Plan>
KV_DEVICE void load_pair(u32 (&halves)[Plan::kCodeTerms], const u32 (&words)[Plan::kBits], int k, u32 mine) {
  const SharedAddress at = Plan::Packing::entry(words, k, mine);
  if constexpr (Plan::kCodeTerms == 2)
    load_shared_u64(halves, decoding_table_at<Plan>() + at);
  else
    halves[0] = load_table<decoding_table_at<Plan>()>(at);
}

// The scales of rows g and g + 8. In formats whose blocks repeat a scale, each lane loads the one of its own block. The
// scales of a row are mostly equal; where they differ, each lane multiplies its decoded values by a weight.
struct RowScales {
  float of_row[2],  // the row's scale, or the largest magnitude where its lanes differ
      weight[2];    // the lane's scale / of_row
  bool is_even;     // the lanes agree in every row of the tile
};
template <class Plan>
KV_DEVICE RowScales row_scales(const u32 (&stored)[2]) {
  RowScales scales = {{f32_from_f16(stored[0]), f32_from_f16(stored[1])}, {1.f, 1.f}, true};
  if constexpr (Plan::kLaneScaleStride > 0) {
    const u32 both = stored[0] | stored[1] << 16;
    scales.is_even = !any(both != shfl(both, lane() & ~3));
    if (scales.is_even) return scales;
    KV_UNROLL
    for (int half = 0; half < 2; ++half) {
      float largest = absolute(scales.of_row[half]);
      largest = larger(largest, shfl_xor(largest, 1));
      largest = larger(largest, shfl_xor(largest, 2));
      if (largest > 0.f) scales.weight[half] = scales.of_row[half] / largest;
      scales.of_row[half] = largest;
    }
  }
  return scales;
}
// Multiplies two decoded values by `weight` and splits each into kTerms fp16 terms again.
template <int kTerms>
KV_DEVICE void weigh(u32 (&halves)[kTerms], float weight) {
  float value[2];
  KV_UNROLL
  for (int i = 0; i < 2; ++i) {
    value[i] = f32_from_f16(halves[0] >> 16 * i & 0xffffu);
    if constexpr (kTerms == 2) value[i] += f32_from_f16(halves[1] >> 16 * i & 0xffffu);
    value[i] *= weight;
  }
  halves[0] = pack_f16x2(value[0], value[1]);
  if constexpr (kTerms == 2)
    halves[1] = pack_f16x2(value[0] - f32_from_f16(halves[0] & 0xffffu), value[1] - f32_from_f16(halves[0] >> 16));
}

// The H16 factor of the inverse transform (kernels/codec/bulk_tile.cuh), from the packed codes of rows g and g + 8.
template <class Plan>
KV_DEVICE void decoded_products(float (&y)[8][2][4], const u32 (&words)[2][Plan::kBits],
                                [[maybe_unused]] const RowScales& scales, u32 mine) {
  KV_UNROLL
  for (int j = 0; j < 8; ++j) {
    u32 pair[2][2][Plan::kCodeTerms];  // [row g or g + 8][h][high terms, rests]
    KV_UNROLL
    for (int i = 0; i < 4; ++i) {
      load_pair<Plan>(pair[i / 2][i % 2], words[i / 2], 2 * j + i % 2, mine);
      if constexpr (Plan::kLaneScaleStride > 0)
        if (!scales.is_even) weigh(pair[i / 2][i % 2], scales.weight[i / 2]);
    }
    const u32 first = load_hadamard(Plan::kMatrixAt, j, 0), positive = load_hadamard(Plan::kMatrixAt, j, 1);
    KV_UNROLL
    for (int h = 0; h < 2; ++h) {
      const u32 second = h == 0 ? positive : positive ^ 0x80008000u;
      mma_16x8x16_first(y[j][h], pair[0][0][0], pair[1][0][0], pair[0][1][0], pair[1][1][0], first, second);
      if constexpr (Plan::kCodeTerms == 2)
        mma_16x8x16(y[j][h], pair[0][0][1], pair[1][0][1], pair[0][1][1], pair[1][1][1], first, second);
    }
  }
}

// Loads the lane's kBits words of codes. `from` is aligned to kCodeUnit bytes.
template <class Plan>
KV_DEVICE void load_codes(u32 (&words)[Plan::kBits], const u8* from) {
  if constexpr (Plan::kCodeUnit == 16 && Plan::kBits == 4) {
    load_u128(words, from);
  } else {
    KV_UNROLL
    for (int i = 0; i < Plan::kBits; ++i) {
      const u8* const at = from + Plan::Packing::template word_at<Plan>(i);
      if constexpr (Plan::kCodeUnit >= 4)
        words[i] = *reinterpret_cast<const u32*>(at);
      else
        words[i] = u32(reinterpret_cast<const u16*>(at)[0]) | u32(reinterpret_cast<const u16*>(at)[1]) << 16;
    }
  }
}

// Divides factors by the lengths of the decoded rows y, so that a row gets the length that its scale states. No length
// is 0: a symmetric codebook has no entry of 0.
template <class Sums>
KV_DEVICE void renormalise(float (&factor)[2], const Sums& y) {
  float square[2];
  squared_lengths(square, y);
  KV_UNROLL
  for (int half = 0; half < 2; ++half) factor[half] *= rsqrt_fast(square[half]);
}

// Codes and scales of one group of the lane's rows g and g + 8, as they are stored.
template <class Plan>
struct StoredBulkTile {
  u32 words[2][Plan::kBits];  // the lane's packed codes of both rows
  u32 scale[2];               // the f16 bits of both scales
  KV_DEVICE void load(const CodecArgs& args, const Tile& tile, int group) {
    using F = typename Plan::F;
    const BulkRow at = tile.row(args, lane() >> 2);
    const i64 token = args.first_token + at.token;
    const StoredRow first = stored_row<F>(args.side, at.sequence, at.head, token);
    load_row(0, group, first);
    if (tile.is_together) {
      load_row(1, group, stored_row_behind<F>(first, args.side, at.sequence, at.head, token, 8));
    } else {
      const BulkRow second = tile.row(args, (lane() >> 2) + 8);
      load_row(1, group, stored_row<F>(args.side, second.sequence, second.head, args.first_token + second.token));
    }
  }
  KV_DEVICE void load_row(int i, int group, const StoredRow& from) {
    load_codes<Plan>(words[i], codes_at<Plan>(from, group));
    scale[i] = *reinterpret_cast<const u16*>(from.scales + Plan::kScaleAt + group * i64(Plan::kScaleStride) +
                                             (lane() & 3) * Plan::kLaneScaleStride);
  }
};

// The factors that turn the sums y of rows g and g + 8 into values. y is read only if the format renormalises, and may
// then be in any unit.
template <class Plan, class Sums>
KV_DEVICE void decoding_factors(float (&factor)[2], const RowScales& scales, [[maybe_unused]] const Sums& y) {
  KV_UNROLL
  for (int half = 0; half < 2; ++half) factor[half] = scales.of_row[half] * Plan::kFactor;
  if constexpr (Plan::kRenormalises) renormalise(factor, y);
}

// Element types of the rows that dequantize writes. kBytes: bytes of a value; pair: a word of two values.
struct HalfOutput {
  static constexpr int kBytes = 2;
  KV_DEVICE static u32 pair(float low, float high) { return pack_f16x2(low, high); }
};
struct BfloatOutput {
  static constexpr int kBytes = 2;
  KV_DEVICE static u32 pair(float low, float high) { return pack_bf16x2(low, high); }
};
struct FloatOutput {
  static constexpr int kBytes = 4;
};

}  // namespace kv
