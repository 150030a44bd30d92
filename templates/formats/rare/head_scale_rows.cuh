// Writes rows of formats with a scale for each KV head (formats/rare/head_scales.cuh).
// SPDX-License-Identifier: MIT
#pragma once
#include "formats/rare/head_scales.cuh"
#include "formats/write_row.cuh"

namespace kv {

template <class Writer, int kPerLane>
requires HasHeadScale<typename Writer::Encoder::F> KV_DEVICE void write_rotated(const float (&values)[kPerLane],
                                                                                float (&rotated)[kPerLane],
                                                                                float tensor_scale, u8* bytes,
                                                                                const StoredRow& to) {
  using R = typename Writer::Encoder;
  Encoding<kPerLane> encoding;
  encode<R>(values, rotated, tensor_scale * head_scale(to), encoding);
  pack<R>(encoding, bytes, to);
  Writer::pad(to);
}

}  // namespace kv
