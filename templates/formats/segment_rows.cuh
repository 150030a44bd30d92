// Writes rows of segments (formats/segments.cuh), one segment after the other: an encoder R has Segments, whose Encoder
// encodes the segment's channels. Segments begin at multiples of 32 channels, so a lane has whole registers of each.
// SPDX-License-Identifier: MIT
#pragma once
#include "formats/scale_rows.cuh"
#include "formats/segments.cuh"
#include "formats/write_row.cuh"

namespace kv {

// Stores scales by columns (formats/scale_rows.cuh), in place of store_numbers() of formats/pack.cuh.
template <class F, class Number, int kAt, int kPerLane>
requires(F::kScaleRows > 1) KV_DEVICE void store_numbers(const StoredRow& to, const float (&numbers)[kPerLane]) {
  KV_UNROLL
  for (int e = 0; e < kPerLane; ++e) {
    const int i = e * 32 + lane();
    if (i % F::kGroup == 0)
      store_bytes<Number::kBytes, 1>(scales_of<F>(to, i) + scale_place<F>(i), Number::encode(numbers[e]));
  }
}

// In place of write_rotated() of formats/write_row.cuh.
template <class Writer, int kPerLane>
requires(Writer::Encoder::F::kHasSegments) KV_DEVICE
    void write_rotated(const float (&)[kPerLane], float (&rotated)[kPerLane], float tensor_scale, u8* bytes,
                       const StoredRow& to) {
  for_each(typename Writer::Encoder::Segments{}, [&](auto segment) {
    using S = decltype(segment);
    constexpr int kOwn = S::F::kStored / 32;
    float own[kOwn];
    KV_UNROLL
    for (int e = 0; e < kOwn; ++e) own[e] = rotated[S::kFirst / 32 + e];
    Encoding<kOwn> encoding;
    encode<typename S::Encoder>(own, own, tensor_scale, encoding);
    pack<typename S::Encoder>(encoding, bytes, segment_row<S>(to));
    sync_warp();  // the next segment takes the bytes
  });
  Writer::pad(to);
}

}  // namespace kv
