// The base of features that multiply V of every token. kernels/decode/skip_values.cuh overrides it for sparse V.
// SPDX-License-Identifier: MIT
#pragma once
#include "device/simt.cuh"

namespace kv {

struct EveryValue {
  // Are the probabilities of these scores so small that V of their tokens can be skipped? The result is warp-uniform.
  // The second argument: a score forces a new reference maximum.
  template <class Plan, class Scores>
  KV_DEVICE static bool skips_values(const Scores&, bool) {
    return false;
  }
};

}  // namespace kv
