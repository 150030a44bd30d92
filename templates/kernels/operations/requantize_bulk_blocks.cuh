// requantize_bulk_blocks: requantizes between formats without a rotation in layout planar. A lane takes kValues
// neighbouring values, which are whole blocks of both formats, so nothing crosses lanes.
// kernels/operations/requantize.cuh serves everything.
// SPDX-License-Identifier: MIT
#pragma once
#include "kernels/operations/cache_tokens.cuh"
#include "device/simt.cuh"
#include "kernels/codec/lane_blocks.cuh"

namespace kv {

template <class Plan>
KV_DEVICE void requantize_bulk_blocks(const CopyArgs& args) {
  using R = typename Plan::Encoder;
  using From = typename Plan::From;
  constexpr int kValues = Plan::kValues, kLanes = Plan::kHeadDim / kValues;
  const i64 item = i64(block_x()) * Plan::kThreads + thread();
  const int row_lane = int(item % kLanes);
  if (item / kLanes >= operation_rows(args)) return;
  const OperationRow row = operation_row(args, u32(item / kLanes));
  const i64 from = slot_of(args.from, row), to = slot_of(args.to, row);
  if (from < 0 || to < 0) return;
  float x[kValues];
  load_lane_blocks<From>(stored_row<From>(args.from.side, row.sequence, row.head, from), row_lane,
                         args.from.tensor_scale, x);
  store_lane_blocks<R>(x, args.to.tensor_scale, stored_row<typename R::F>(args.to.side, row.sequence, row.head, to),
                       row_lane);
}

}  // namespace kv
