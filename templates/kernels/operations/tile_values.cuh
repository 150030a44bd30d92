// Bulk tiles as fp32 values, for operations that read a cache and write one: functions that decode one group of 16
// stored rows into registers, and functions that encode it.
//
// Lane 4 g + c holds value 32 c + 4 j + 2 h + i of a group: of row g in y[j][h][i], of row g + 8 in y[j][h][2 + i]
// (kernels/codec/bulk_tile.cuh). A kernel needs the tables of both directions in shared memory: those of encoding where
// kernels/codec/bulk_encode.cuh has them, those of decoding from Reader::kTableAt on.
// SPDX-License-Identifier: MIT
#pragma once
#include "kernels/operations/cache_tokens.cuh"
#include "kernels/codec/bulk_decode.cuh"
#include "kernels/codec/bulk_encode.cuh"
#include "device/simt.cuh"
#include "kernels/codec/bulk_tile.cuh"

namespace kv {

template <class Args>
KV_DEVICE OperationRow operation_row(const Args& args, const BulkRow& row) {
  return {row.sequence, row.token, row.head, row.sequence * args.tokens + row.token};
}

// Decodes a group in the rotated domain: entries of the codebook times the scale.
template <class Reader>
KV_DEVICE void read_rotated_tile(float (&y)[8][2][4], const StoredBulkTile<Reader>& stored) {
  KV_UNROLL
  for (int half = 0; half < 2; ++half) {
    const float factor = Reader::kRenormalises ? 1.f : f32_from_f16(stored.scale[half]) * Reader::kUnit;
    KV_UNROLL
    for (int k = 0; k < 16; ++k) {
      u32 halves[Reader::kCodeTerms];
      load_pair<Reader>(halves, stored.words[half], k, lane() * kPairBytes<Reader>);
      KV_UNROLL
      for (int i = 0; i < 2; ++i) {
        float value = f32_from_f16(halves[0] >> 16 * i & 0xffffu);
        if constexpr (Reader::kCodeTerms == 2) value += f32_from_f16(halves[1] >> 16 * i & 0xffffu);
        y[k / 2][k % 2][2 * half + i] = value * factor;
      }
    }
  }
  if constexpr (Reader::kRenormalises) {
    float factor[2];
    decoding_factors<Reader>(factor, row_scales<Reader>(stored.scale), y);
    KV_UNROLL
    for (int i = 0; i < 64; ++i) y[i / 8][i / 4 % 2][i % 4] *= factor[i / 2 % 2];
  }
}

// Decodes a group in the original domain.
template <class Reader>
KV_DEVICE void read_tile(float (&y)[8][2][4], const StoredBulkTile<Reader>& stored) {
  const RowScales scales = row_scales<Reader>(stored.scale);
  decoded_products<Reader>(y, stored.words, scales, lane() * kPairBytes<Reader>);
  butterflies(y);
  const u32 signs = Reader::pre_signs(lane() & 3);
  float factor[2];
  decoding_factors<Reader>(factor, scales, y);
  KV_UNROLL
  for (int half = 0; half < 2; ++half) {
    KV_UNROLL
    for (int e = 0; e < 32; ++e) {
      float& value = y[e / 4][e / 2 % 2][2 * half + e % 2];
      value = float_of(bits_of(value * factor[half]) ^ (signs >> e & 1) << 31);
    }
  }
}

// Encodes a group that is in the rotated domain of the format.
template <class Writer>
KV_DEVICE void write_rotated_tile(EncodedRow (&rows)[2], const float (&y)[8][2][4]) {
  constexpr float kRoot = 11.3137085f;  // sqrt(128), by which encode_tile expects values to be longer
  float square[2];
  squared_lengths(square, y);
  encode_tile<Writer>(rows, y, square, {kRoot, kRoot}, {});
}

// Encodes a group that is in the original domain; y is overwritten. Values enter the products as two fp16 terms each,
// exact to 2^-22. A power of two near the reciprocal of the row's length brings them into the range of fp16.
template <class Writer>
KV_DEVICE void write_tile(EncodedRow (&rows)[2], float (&y)[8][2][4], const u32 (&mirror)[4]) {
  constexpr float kRange = 0x1p10f;  // The rests of the largest values are then normal fp16 numbers.
  float square[2], power[2], unit[2];
  squared_lengths(square, y);
  KV_UNROLL
  for (int half = 0; half < 2; ++half) {
    power[half] = has_direction(square[half]) ? power_below(rsqrt_fast(square[half])) * kRange : 0.f;
    unit[half] = reciprocal_power(power[half]);
  }
  KV_UNROLL
  for (int j = 0; j < 8; ++j) {
    u32 high[2][2], rest[2][2];  // [h][row g or g + 8]: high terms of two values, and their rests
    KV_UNROLL
    for (int i = 0; i < 4; ++i) {
      const int h = i / 2, half = i % 2;
      const float a = y[j][h][2 * half] * power[half], b = y[j][h][2 * half + 1] * power[half];
      high[h][half] = pack_f16x2(a, b);
      rest[h][half] = pack_f16x2(a - f32_from_f16(high[h][half] & 0xffffu), b - f32_from_f16(high[h][half] >> 16));
    }
    const u32 first = load_hadamard(Writer::kMatrixAt, j, 0), positive = load_hadamard(Writer::kMatrixAt, j, 1);
    KV_UNROLL
    for (int h = 0; h < 2; ++h) {
      const u32 second = h == 0 ? positive : positive ^ 0x80008000u;
      mma_16x8x16_first(y[j][h], high[0][0], high[0][1], high[1][0], high[1][1], first, second);
      mma_16x8x16(y[j][h], rest[0][0], rest[0][1], rest[1][0], rest[1][1], first, second);
    }
  }
  butterflies(y);
  encode_tile<Writer>(rows, y, square, unit, mirror);
}

}  // namespace kv
