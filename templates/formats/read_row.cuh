// Reads a row out of the cache, by one warp: value i in lane i % 32, register i / 32. A Reader of the generator names
// the format F, and has the members that formats/rotated_domain.cuh requires.
// SPDX-License-Identifier: MIT
#pragma once
#include "device/simt.cuh"
#include "formats/rotated_domain.cuh"
#include "formats/stored_row.cuh"

namespace kv {

// Loads the stored values of a row into x, and its residuals, if it has any, into `second`.
template <class Reader, int kPerLane>
KV_DEVICE void load_stored(const StoredRow& from, float tensor_scale, float (&x)[kPerLane], float (&second)[kPerLane]) {
  using F = typename Reader::F;
  load_row<F>(from, x);
  if constexpr (F::kHasTensorScale) {
    KV_UNROLL
    for (int e = 0; e < kPerLane; ++e) x[e] *= tensor_scale;
  }
  if constexpr (F::kHasResidual) load_residuals<F>(from, second);
}

// Reads a row in the rotated domain.
template <class Reader, int kPerLane>
KV_DEVICE void read_rotated(const StoredRow& from, float tensor_scale, float (&x)[kPerLane]) {
  float second[kPerLane];
  load_stored<Reader>(from, tensor_scale, x, second);
  if constexpr (Reader::F::kHasResidual) add_residual<Reader>(x, second);
}

// Reads a row in the caller's domain. Its values are the first kHeadDim of x.
template <class Reader, int kPerLane>
KV_DEVICE void read_row(const StoredRow& from, float tensor_scale, float (&x)[kPerLane]) {
  float second[kPerLane];
  load_stored<Reader>(from, tensor_scale, x, second);
  from_rotated<Reader>(x, second);
}

}  // namespace kv
