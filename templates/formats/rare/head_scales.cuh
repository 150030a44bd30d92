// Rows of formats with a scale for each KV head, which the caller keeps in device memory: StoredRow::scales points at
// the float of the row's head, so the row counts as planar. This is how a row is read; formats/rare/head_scale_rows.cuh
// is how it is written.
// SPDX-License-Identifier: MIT
#pragma once
#include "formats/read_row.cuh"

namespace kv {

template <class F>
concept HasHeadScale = F::kHasHeadScales;

// Scales of blocks are in layout rows.
template <HasHeadScale F>
KV_DEVICE u8* scales_of(const StoredRow& row, int i) {
  return codes_of<F>(row, i);
}

KV_DEVICE float head_scale(const StoredRow& row) { return *reinterpret_cast<const float*>(row.scales); }

template <class Reader, int kPerLane>
requires HasHeadScale<typename Reader::F> KV_DEVICE void load_stored(const StoredRow& from, float tensor_scale,
                                                                     float (&x)[kPerLane], float (&)[kPerLane]) {
  load_row<typename Reader::F>(from, x);
  const float scale = tensor_scale * head_scale(from);
  KV_UNROLL
  for (int e = 0; e < kPerLane; ++e) x[e] *= scale;
}

}  // namespace kv
