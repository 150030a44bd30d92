// What follows where lanes store to staged rows: where rows of V are cleared (kernels/decode/hidden_values.cuh), and
// where scales are divided (half_scales.cuh, half_key_scales.cuh).
// SPDX-License-Identifier: MIT
#pragma once
#include "kernels/decode/stage_tile.cuh"

namespace kv {

// Called when lanes have stored to staged rows. Bulk copies, which overwrite them later, have their own form.
template <class Side>
KV_DEVICE void end_stores(Side) {
  sync_warp();
}
// The side whose staged rows hold V: that of K if V is in K's rows.
template <class Plan>
concept HasValuesInKeys = requires {
  Plan::V::kIsInKeys;
};
template <class Plan>
struct SideOfValues {
  using Side = typename Plan::V;
};
template <HasValuesInKeys Plan>
struct SideOfValues<Plan> {
  using Side = typename Plan::K;
};
template <class Plan>
using StagedValues = typename SideOfValues<Plan>::Side;

}  // namespace kv
