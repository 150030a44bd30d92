// V of every token is multiplied.
// SPDX-License-Identifier: MIT
#pragma once
#include "device/simt.cuh"

namespace kv {

struct EveryValue {
  // Do tokens of these scores count for so little that their V can be passed over? The same answer in the whole warp.
  template <class Plan, class Scores>
  KV_DEVICE static bool skips_values(const Scores&, bool) {
    return false;
  }
};

}  // namespace kv
