// Writes a row into the cache, by one warp: multiply by the factors of channels, rotate, encode, pack. Value i of the
// row is in lane i % 32, register i / 32, as rotations need it. formats/encode.cuh says what the bytes are. A Writer of
// the generator names the Encoder and kHeadDim, and has channel(i), the factor of a channel, and pad(to), which zeroes
// the padding of blocks.
// SPDX-License-Identifier: MIT
#pragma once
#include "args/attention.cuh"
#include "formats/number_rows.cuh"
#include "device/simt.cuh"
#include "formats/encode.cuh"
#include "formats/pack.cuh"

namespace kv {

// Writes a row that is rotated. values, rotated: the row before and after the rotation. bytes: shared memory of this
// warp, as pack() of formats/pack.cuh describes it.
template <class Writer, int kPerLane>
KV_DEVICE void write_rotated(const float (&values)[kPerLane], float (&rotated)[kPerLane], float tensor_scale, u8* bytes,
                             const StoredRow& to) {
  using R = typename Writer::Encoder;
  if constexpr (R::kRoundsToBf16) {
    KV_UNROLL
    for (int e = 0; e < kPerLane; ++e) rotated[e] = f32_from_bf16(bf16_from_f32(rotated[e]));
  }
  Encoding<kPerLane> encoding;
  encode<R>(values, rotated, tensor_scale, encoding);
  pack<R>(encoding, bytes, to);
  Writer::pad(to);
}

// Writes a row of the caller's domain. values: zero behind the head.
template <class Writer, int kPerLane>
KV_DEVICE void write_values(float (&values)[kPerLane], float tensor_scale, u8* bytes, const StoredRow& to) {
  float rotated[kPerLane];
  KV_UNROLL
  for (int e = 0; e < kPerLane; ++e) {
    values[e] = mul_rn(values[e], Writer::channel(e * 32 + lane()));
    rotated[e] = values[e];
  }
  Writer::Encoder::Rotation::forward(rotated);
  write_rotated<Writer>(values, rotated, tensor_scale, bytes, to);
}

// Writes a dequantized row that is in memory. from: the element of x that the row begins at.
template <class Writer>
KV_DEVICE void write_row(const void* x, RowType type, i64 from, float tensor_scale, u8* bytes, const StoredRow& to) {
  float values[per_lane(Writer::Encoder::F::kStored)];
  load_values<Writer::kHeadDim>(x, type, from, values);
  write_values<Writer>(values, tensor_scale, bytes, to);
}

}  // namespace kv
