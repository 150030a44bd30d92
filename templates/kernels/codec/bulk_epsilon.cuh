// Encodes rows in bulk whose values are divided by (their length + epsilon): encode_row of
// kernels/codec/bulk_encode.cuh for a Plan with kEpsilon.
// SPDX-License-Identifier: MIT
#pragma once
#include "kernels/codec/bulk_encode.cuh"

namespace kv {

template <class Plan, class Eight>
requires(Plan::kEpsilon > 0.f) KV_DEVICE
    void encode_row(EncodedRow& row, float square, float factor, const Eight& eight) {
  row.is_direction = has_direction(square);
  row.norm = row.is_direction ? square * rsqrt_fast(square) : 0.f;
  const float steps = Plan::kStep * factor / (row.norm + Plan::kEpsilon);
  KV_UNROLL
  for (int e = 0; e < 4; ++e) {
    float v[8];
    eight(e, v);
    row.nibbles[e] = encode_eight(v, steps, lane() * 4);
  }
  clear_if_zero<Plan>(row);
}

}  // namespace kv
