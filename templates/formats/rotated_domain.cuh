// The domain that attention works in. With R the rotation, P the residual's projection and c the factors of the
// channels, stored rows stand for keys k and values v by their stored values s and their residuals e (both in the order
// of formats/stored_row.cuh: s, then e):
//
//   residual in the rotated domain    k = c^-1 R^T (s + P^T e)      so q.k = [R q'; P R q'] . [s; e]   with q' = q / c
//   residual in the original one      k = c^-1 (R^T s + P^T e)      so q.k = [R q'; P q'] . [s; e]
//
// Heads that are padded have zeros behind them. D: kHeadDim, kStored, kHasResidual, kIsOriginal, kHasChannels,
// Rotation, Projection, channel(i).
// SPDX-License-Identifier: MIT
#pragma once
#include "device/simt.cuh"

namespace kv {

// A query row to its inner row: x, and `second` for the residuals.
template <class D, int kPerLane>
KV_DEVICE void to_inner(float (&x)[kPerLane], float (&second)[kPerLane]) {
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

// Residuals into the rotated domain, where s is: what a decoded row is while it stays rotated.
template <class D, int kPerLane>
KV_DEVICE void add_residual(float (&x)[kPerLane], float (&second)[kPerLane]) {
  D::Projection::inverse(second);
  if constexpr (D::kIsOriginal) D::Rotation::forward(second);
  KV_UNROLL
  for (int e = 0; e < kPerLane; ++e) x[e] += second[e];
}

// An inner row (x and `second`) to the caller's domain.
template <class D, int kPerLane>
KV_DEVICE void from_inner(float (&x)[kPerLane], float (&second)[kPerLane]) {
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
