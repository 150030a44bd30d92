// decode with a scale for each KV head. A KV split belongs to one head.
// SPDX-License-Identifier: MIT
#pragma once
#include "kernels/decode/decode.cuh"
#include "kernels/decode/rare/head_scaled.cuh"

namespace kv {

template <HasHeadScales Plan, IsOfOneLength Args, class TileScheduler>
KV_DEVICE void attend_split(const Args& args, TileScheduler& scheduler, KvSplit& split) {
  attend_split<typename Plan::BarePlan>(args_of_head<Plan>(args, split.sequence, QueryChunk<Plan>(split.head).head),
                                        scheduler, split);
}

}  // namespace kv
