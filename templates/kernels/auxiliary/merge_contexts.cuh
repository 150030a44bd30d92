// merge_contexts: merges the outputs of calls over parts of a context into the output over all of it (FlashInfer:
// merge_states). Each part brings its outputs and their lse (features/lse.cuh), by which the outputs are weighted:
//
//   out = sum_i exp(lse_i - row_max) out_i / sum_i exp(lse_i - row_max)      row_max = max_i lse_i
//
// A part in which a row has seen no token has an lse of minus infinity, and its output is not read. A warp takes one
// row.
// SPDX-License-Identifier: MIT
#pragma once
#include "device/math.cuh"
#include "features/feature_list.cuh"

namespace kv {

template <class Plan>
KV_DEVICE void merge_contexts(const MergeContextsArgs& args) {
  const int row = block_x() * Plan::kWarps + warp();  // [sequence][query][head]
  if (row >= args.sequences * args.queries * args.heads) return;
  const int sequence = row / (args.queries * args.heads), query = row / args.heads % args.queries,
            head = row % args.heads;
  const auto place = [&](const Rows& rows) {
    return sequence * rows.sequence_stride + query * rows.query_stride + head * rows.head_stride;
  };
  float row_max = minus_infinity(), sum = 0.f, out[Plan::kPerLane] = {};
  KV_NO_UNROLL
  for (int i = 0; i < args.count; ++i) row_max = larger(row_max, args.contexts[i].lse[row]);
  const bool has_seen = row_max > minus_infinity();
  KV_NO_UNROLL
  for (int i = 0; i < args.count && has_seen; ++i) {
    const float weight = exp2_fast((args.contexts[i].lse[row] - row_max) * kLog2E);
    if (weight == 0.f) continue;
    const i64 from = place(args.contexts[i].out);
    sum += weight;
    KV_UNROLL
    for (int e = 0; e < Plan::kPerLane; ++e)
      if (e * 32 + lane() < Plan::kDim)
        out[e] += weight * Plan::load(args.contexts[i].out.data, from + e * 32 + lane());
  }
  const i64 to = place(args.out);
  const float inverse = has_seen ? div_rn(1.f, sum) : 0.f;
  KV_UNROLL
  for (int e = 0; e < Plan::kPerLane; ++e)
    if (e * 32 + lane() < Plan::kDim) Plan::store(args.out.data, to + e * 32 + lane(), out[e] * inverse);
  if (lane() == 0 && args.lse) args.lse[row] = has_seen ? row_max + log2_fast(sum) * kLn2 : minus_infinity();
}

}  // namespace kv
