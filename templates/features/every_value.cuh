// The base of features that multiply V of every token. kernels/decode/skip_values.cuh replaces its answer for sparse V.
// SPDX-License-Identifier: MIT
#pragma once
#include "device/simt.cuh"

namespace kv {

struct EveryValue {
  // Are the probabilities of these scores so small that V of their tokens can be skipped? The answer is warp-uniform.
  // The second argument says that a score forces a new reference maximum.
  template <class Plan, class Scores>
  KV_DEVICE static bool skips_values(const Scores&, bool) {
    return false;
  }
};

}  // namespace kv
