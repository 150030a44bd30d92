// The rotated domain, in which decode works. Let R be the rotation, P the residual's projection, and c the factors by
// which channels are multiplied before they are coded. A stored row has values s and residuals e. It stands for a key
// k, or likewise for a value v:
//
//   residual in the rotated domain      k = c^-1 R^T (s + P^T e)    so q.k = [R q'; P R q'] . [s; e]  with q' = q / c
//   residual in the original domain     k = c^-1 (R^T s + P^T e)    so q.k = [R q'; P q'] . [s; e]
//
// In memory a row of the rotated domain is s, then e (formats/stored_row.cuh). Zeros follow the values of padded heads.
//
// A domain D of the generator has kHeadDim, kStored, kHasResidual, kIsOriginal (the residual is of the original
// domain), kHasChannels, channel(i) = c_i, Rotation and Projection.
// SPDX-License-Identifier: MIT
#pragma once
#include "device/simt.cuh"

namespace kv {

// Takes a query row to the rotated domain: x for the values, `second` for the residuals.
template <class D, int kPerLane>
KV_DEVICE void to_rotated(float (&x)[kPerLane], float (&second)[kPerLane]) {
  KV_UNROLL
  for (int e = 0; e < kPerLane; ++e) {
    if constexpr (D::kHasChannels) x[e] = div_rn(x[e], D::channel(e * 32 + lane()));
    second[e] = x[e];
  }
  D::Rotation::forward(x);
  if constexpr (D::kHasResidual) {
    KV_UNROLL
    for (int e = 0; e < kPerLane; ++e) second[e] = D::kIsOriginal ? second[e] : x[e];
    D::Projection::forward(second);
  }
}

// Adds the residuals to x in the rotated domain. The sum is a decoded row that stays rotated.
template <class D, int kPerLane>
KV_DEVICE void add_residual(float (&x)[kPerLane], float (&second)[kPerLane]) {
  D::Projection::inverse(second);
  if constexpr (D::kIsOriginal) D::Rotation::forward(second);
  KV_UNROLL
  for (int e = 0; e < kPerLane; ++e) x[e] += second[e];
}

// Takes a row of the rotated domain, x and `second`, to the caller's domain.
template <class D, int kPerLane>
KV_DEVICE void from_rotated(float (&x)[kPerLane], float (&second)[kPerLane]) {
  if constexpr (D::kHasResidual) D::Projection::inverse(second);
  KV_UNROLL
  for (int e = 0; e < kPerLane; ++e)
    if constexpr (D::kHasResidual && !D::kIsOriginal) x[e] += second[e];
  D::Rotation::inverse(x);
  KV_UNROLL
  for (int e = 0; e < kPerLane; ++e) {
    if constexpr (D::kHasResidual && D::kIsOriginal) x[e] += second[e];
    if constexpr (D::kHasChannels) x[e] = div_rn(x[e], D::channel(e * 32 + lane()));
  }
}

}  // namespace kv
