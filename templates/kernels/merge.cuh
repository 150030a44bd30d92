// merge: the parts of each (sequence, KV head) pair that decode left become its rows of output, where the plan does not fuse that.
// One block a row of V's inner dimension. A row without any token gives zeros.
// SPDX-License-Identifier: MIT
#pragma once
#include "kernels/decode_merge.cuh"

namespace kv {

template <class Plan, class Args>
KV_DEVICE void merge(const Args& args) {
  const int row = block_x();
  const Turn<Plan> turn(block_y());
  if (!turn.has(row)) return;  // the whole block
  const i64 to = block_z() * args.out.sequence_stride + turn.query(row) * args.out.query_stride +
                 turn.query_head(row) * args.out.head_stride;
  const auto work = work_of<Plan>(args);
  const Part pair = work.pair(block_z(), block_y());
  const int first = work.block_of(pair.pair_begin), parts = work.block_of(pair.pair_begin + pair.tiles - 1) - first + 1;
  const auto end = row_end<Plan>(args, pair, row);
  for (int i = thread() * 4; i < Plan::kValueDim; i += Plan::kThreads * 4) {
    const RowSums all = sum_rows<kPartsAtOnce>(
        parts, [&](int p) { return load_partial<Plan>(args, work.slot(first + p, pair.sequence, pair.head), row, i); });
    const RowSums sum = end.of(all, i == 0);
    KV_UNROLL
    for (int j = 0; j < 4; ++j) {
      const int d = Plan::value_order(i + j);
      if (d < Plan::kOutputDim) Plan::store(args.out.data, to + d, sum.x[j] * sum.inverse());
    }
  }
}

}  // namespace kv
