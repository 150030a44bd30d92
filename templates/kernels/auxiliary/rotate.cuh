// rotate: rotates queries into K's rotated domain before attention (forward), or outputs out of V's rotated domain
// after it (inverse). A warp takes one row. This happens once a query row and once an output row, never once a token of
// the cache.
// SPDX-License-Identifier: MIT
#pragma once
#include "args/attention.cuh"
#include "device/simt.cuh"
#include "formats/rotated_domain.cuh"

namespace kv {

template <class Plan>
KV_DEVICE void rotate(const RotateArgs& args) {
  constexpr int kPerLane = Plan::kStored / 32, kIn = Plan::kIsInverse ? Plan::kStored : Plan::kHeadDim,
                kOut = Plan::kIsInverse ? Plan::kHeadDim : Plan::kStored;
  const i64 row = i64(block_x()) * Plan::kWarps + warp();
  if (row >= i64(args.sequences) * args.queries * args.heads) return;
  const i64 head = row % args.heads, query = row / args.heads % args.queries,
            sequence = row / args.heads / args.queries;
  const i64 from = sequence * args.in.sequence_stride + query * args.in.query_stride + head * args.in.head_stride;
  const i64 to = sequence * args.out.sequence_stride + query * args.out.query_stride + head * args.out.head_stride;
  float x[kPerLane], second[kPerLane];
  KV_UNROLL
  for (int e = 0; e < kPerLane; ++e) {
    const int i = e * 32 + lane();
    x[e] = i < kIn ? Plan::load(args.in.data, from + i) : 0.f;
    if constexpr (Plan::kIsInverse && Plan::kHasResidual) second[e] = Plan::load(args.in.data, from + kIn + i);
  }
  if constexpr (Plan::kIsInverse)
    from_rotated<Plan>(x, second);
  else
    to_rotated<Plan>(x, second);
  KV_UNROLL
  for (int e = 0; e < kPerLane; ++e) {
    const int i = e * 32 + lane();
    if (i < kOut) Plan::store(args.out.data, to + i, x[e]);
    if constexpr (!Plan::kIsInverse && Plan::kHasResidual) Plan::store(args.out.data, to + kOut + i, second[e]);
  }
}

}  // namespace kv
