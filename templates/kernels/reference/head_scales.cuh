// The reference kernel with a scale for each KV head.
// SPDX-License-Identifier: MIT
#pragma once
#include "kernels/decode/rare/head_scaled.cuh"
#include "kernels/reference/reference.cuh"

namespace kv {

template <HasHeadScales Plan, IsOfOneLength Args>
KV_DEVICE void attend_row(const Args& args, int query, int head) {
  attend_row<typename Plan::BarePlan>(args_of_head<Plan>(args, block_z(), head / Plan::kGroup), query, head);
}

}  // namespace kv
