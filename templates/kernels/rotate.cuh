// rotate: queries before attention (forward, K's rotation) and outputs after it (inverse, V's rotation). One
// warp a row; once per query and output row, never per token of the cache.
// SPDX-License-Identifier: MIT
#pragma once
#include "core/args.cuh"
#include "core/simt.cuh"

namespace kv {

template <class Plan>
KV_DEVICE void rotate(const RotateArgs& args) {
  constexpr int kPerLane = Plan::kHeadDim / 32;
  i64 row = i64(block_x()) * Plan::kWarps + warp();
  if (row >= i64(args.sequences) * args.queries * args.heads) return;
  const i64 head = row % args.heads, query = row / args.heads % args.queries,
            sequence = row / args.heads / args.queries;
  const i64 from = sequence * args.in.sequence_stride + query * args.in.query_stride + head * args.in.head_stride;
  const i64 to = sequence * args.out.sequence_stride + query * args.out.query_stride + head * args.out.head_stride;
  float x[kPerLane];
  KV_UNROLL
  for (int e = 0; e < kPerLane; ++e) x[e] = Plan::load(args.in.data, from + e * 32 + lane());
  if constexpr (Plan::kIsInverse)
    Plan::Rotation::inverse(x);
  else
    Plan::Rotation::forward(x);
  KV_UNROLL
  for (int e = 0; e < kPerLane; ++e) Plan::store(args.out.data, to + e * 32 + lane(), x[e]);
}

}  // namespace kv
