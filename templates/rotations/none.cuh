// No rotation.
// SPDX-License-Identifier: MIT
#pragma once
#include "core/simt.cuh"

namespace kv {

struct NoRotation {
  template <int kPerLane>
  KV_DEVICE static void forward(float (&)[kPerLane]) {}
  template <int kPerLane>
  KV_DEVICE static void inverse(float (&)[kPerLane]) {}
};

}  // namespace kv
