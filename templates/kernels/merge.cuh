// merge: the splits of a decode call become one softmax, by their maxima and denominators (log-sum-exp). One
// block a row of V's inner dimension. A row without any token gives zeros.
// SPDX-License-Identifier: MIT
#pragma once
#include "core/args.cuh"
#include "core/simt.cuh"

namespace kv {

template <class Plan>
KV_DEVICE void merge(const MergeArgs& args) {
  constexpr float kNone = -1e30f;
  const int row = block_x(), query = row / Plan::kGroup, head = block_y() * Plan::kGroup + row % Plan::kGroup;
  const i64 first = (i64(block_z()) * args.kv_heads + block_y()) * args.splits * Plan::kRows +
                    row;  // of split 0; the next is kRows on
  const i64 to = block_z() * args.out.sequence_stride + query * args.out.query_stride + head * args.out.head_stride;
  float top = kNone, denominator = 0.f;
  for (int split = 0; split < args.splits; ++split)
    top = larger(top, args.partial_state[(first + split * Plan::kRows) * 2]);
  for (int split = 0; split < args.splits; ++split) {
    const float* const state = args.partial_state + (first + split * Plan::kRows) * 2;
    denominator += exp2_fast(state[0] - top) * state[1];
  }
  const float inverse = denominator > 0.f ? 1.f / denominator : 0.f;
  for (int i = thread(); i < Plan::kDim; i += Plan::kThreads) {
    float sum = 0.f;
    for (int split = 0; split < args.splits; ++split)
      sum += exp2_fast(args.partial_state[(first + split * Plan::kRows) * 2] - top) *
             args.partial[(first + split * Plan::kRows) * Plan::kDim + i];
    Plan::store(args.out.data, to + i, sum * inverse);
  }
}

}  // namespace kv
