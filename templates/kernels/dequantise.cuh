// dequantise: cache rows back to f32, in the original domain unless the caller keeps them rotated. One warp a
// row.
// SPDX-License-Identifier: MIT
#pragma once
#include "core/args.cuh"
#include "core/simt.cuh"
#include "formats/stored.cuh"

namespace kv {

template <class Plan>
KV_DEVICE void dequantise(const CodecArgs& args) {
  constexpr int kPerLane = (Plan::kHeadDim + 31) / 32;
  const i64 row = i64(block_x()) * Plan::kWarps + warp();
  if (row >= i64(args.sequences) * args.tokens * args.heads) return;  // the whole warp
  const i64 head = row % args.heads, token = row / args.heads % args.tokens, sequence = row / args.heads / args.tokens;
  const StoredRow from = stored_row<typename Plan::F>(args.side, sequence, head, args.first_token + token);
  const i64 to = sequence * args.x.sequence_stride + token * args.x.query_stride + head * args.x.head_stride;

  float x[kPerLane];
  KV_UNROLL
  for (int e = 0; e < kPerLane; ++e)
    x[e] = e * 32 + lane() < Plan::kHeadDim ? load_value<typename Plan::F>(from, e * 32 + lane()) : 0.f;
  if (!args.keep_rotated) Plan::Rotation::inverse(x);
  KV_UNROLL
  for (int e = 0; e < kPerLane; ++e)
    if (e * 32 + lane() < Plan::kHeadDim) static_cast<float*>(args.x.data)[to + e * 32 + lane()] = x[e];
}

}  // namespace kv
