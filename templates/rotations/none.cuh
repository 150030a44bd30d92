// No rotation: the identity, in the form of the other rotations. forward and inverse take a row that a warp holds,
// forward_in_lane and inverse_in_lane take whole groups that one lane holds.
// SPDX-License-Identifier: MIT
#pragma once
#include "device/simt.cuh"

namespace kv {

struct NoRotation {
  template <int kPerLane>
  KV_DEVICE static void forward(float (&)[kPerLane]) {}
  template <int kPerLane>
  KV_DEVICE static void inverse(float (&)[kPerLane]) {}
  template <int kValues>
  KV_DEVICE static void forward_in_lane(float (&)[kValues]) {}
  template <int kValues>
  KV_DEVICE static void inverse_in_lane(float (&)[kValues]) {}
};

}  // namespace kv
