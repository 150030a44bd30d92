// reference: attention as the formula says it, one warp a query row, token after token. No tiling, no tensor
// cores, no split: written to be read. Every faster family is tested against it, and it is itself tested
// against a double-precision oracle that shares no code.
// SPDX-License-Identifier: MIT
#pragma once
#include "core/args.cuh"
#include "core/simt.cuh"
#include "formats/stored.cuh"

namespace kv {

template <class Plan>
KV_DEVICE void reference(const AttentionArgs& args) {
  constexpr int kPerLane = (Plan::kHeadDim + 31) / 32;
  const int q_heads = args.kv_heads * Plan::kGroup, head = block_x() % q_heads, query = block_x() / q_heads;
  const int given = args.lengths ? args.lengths[block_z()] : args.tokens,
            length = given < args.tokens ? given : args.tokens;
  const i64 from = block_z() * args.q.sequence_stride + query * args.q.query_stride + head * args.q.head_stride;
  const i64 to = block_z() * args.out.sequence_stride + query * args.out.query_stride + head * args.out.head_stride;

  float q[kPerLane], out[kPerLane] = {};
  for (int e = 0; e < kPerLane; ++e) {
    const int i = e * 32 + lane();
    q[e] = i < Plan::kHeadDim ? Plan::load_query(args.q.data, from + i) * args.scale_log2 : 0.f;
  }

  float m = -1e30f, d = 0.f;  // running maximum (base 2) and denominator
  for (int token = 0; token < length; ++token) {
    if (!Plan::Feature::sees(query, token, length)) continue;
    const StoredRow k = stored_row<typename Plan::K>(args.k, block_z(), head / Plan::kGroup, token);
    const StoredRow v = stored_row<typename Plan::V>(args.v, block_z(), head / Plan::kGroup, token);
    float s = 0.f;
    for (int e = 0; e < kPerLane; ++e)
      if (e * 32 + lane() < Plan::kHeadDim) s += q[e] * load_value<typename Plan::K>(k, e * 32 + lane());
    for (int mask = 16; mask > 0; mask >>= 1) s += shfl_xor(s, mask);

    const float renewed = larger(m, s), keep = exp2_fast(m - renewed), p = exp2_fast(s - renewed);
    m = renewed;
    d = d * keep + p;
    for (int e = 0; e < kPerLane; ++e)
      if (e * 32 + lane() < Plan::kHeadDim)
        out[e] = out[e] * keep + p * load_value<typename Plan::V>(v, e * 32 + lane());
  }

  for (int e = 0; e < kPerLane; ++e)
    if (e * 32 + lane() < Plan::kHeadDim) Plan::store(args.out.data, to + e * 32 + lane(), d > 0.f ? out[e] / d : 0.f);
}

}  // namespace kv
