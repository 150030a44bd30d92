// No rotation.
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
