// The reference kernel with run-time query lengths (args/varlen.cuh): the rows of the sequence are moved, and queries
// are numbered so that the last of them is number kQueries - 1.
// SPDX-License-Identifier: MIT
#pragma once
#include "kernels/decode/query_ranges.cuh"
#include "kernels/reference/reference.cuh"

namespace kv {

template <class Plan, HasAllSequences Args>
KV_DEVICE void attend_row(const Args& args, int query, int head) {
  const QueryRange range = query_range(args.varlen, block_z());
  if (query >= range.count) return;
  attend_row<Plan>(args_of_sequence<Plan>(args, range, block_z()), Plan::kQueries - range.count + query, head);
}

}  // namespace kv
