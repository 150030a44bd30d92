// reference: attention as the formula says it, one warp a query row, token after token. No tiling, no tensor
// cores, no split: written to be read. Every faster family is tested against it, and it is itself tested
// against a double-precision oracle that shares no code.
//
// Keys and values are those of formats/rotated_domain.cuh: stored values, then residuals.
// SPDX-License-Identifier: MIT
#pragma once
#include "args/attention.cuh"
#include "device/simt.cuh"
#include "formats/stored_row.cuh"

namespace kv {

// What is asked of the scores and of the sums of a row: nothing but which tokens it sees, without features
// (kernels/reference/features.cuh).
template <class Plan>
struct PlainRow {
  int query, length;
  KV_DEVICE bool sees(int token) const { return Plan::Feature::sees(query, token, length); }
  KV_DEVICE float score(float s, int) const { return s; }
  KV_DEVICE float finish(float&, float&) const { return 1.f; }  // of what was added up: how it changes
};
template <class Plan, class Args>
KV_DEVICE PlainRow<Plan> row_features(const Args&, int, int query, int, int length) {
  return {query, length};
}

template <class Plan, class Args>
KV_DEVICE void reference(const Args& args) {
  using K = typename Plan::K;
  using V = typename Plan::V;
  constexpr int kKeys = per_lane(K::kStored), kValues = per_lane(V::kStored);
  const int q_heads = args.work.kv_heads * Plan::kGroup, head = block_x() % q_heads, query = block_x() / q_heads;
  const int given = args.work.lengths ? args.work.lengths[block_z()] : args.work.tokens,
            length = given < args.work.tokens ? given : args.work.tokens;
  const i64 from = block_z() * args.q.sequence_stride + query * args.q.query_stride + head * args.q.head_stride;
  const i64 to = block_z() * args.out.sequence_stride + query * args.out.query_stride + head * args.out.head_stride;

  float q[kKeys], q_second[kKeys], out[kValues] = {}, out_second[kValues] = {};  // second: of the residuals
  for (int e = 0; e < kKeys; ++e) {
    const int i = e * 32 + lane();
    const bool exists = K::kStored % 32 == 0 || i < K::kStored;
    q[e] = exists ? Plan::load_query(args.q.data, from + i) * args.scale_log2 : 0.f;
    if constexpr (K::kHasResidual) q_second[e] = Plan::load_query(args.q.data, from + K::kStored + i) * args.scale_log2;
  }

  const auto features = row_features<Plan>(args, block_z(), query, head, length);
  float m = -1e30f, d = 0.f;  // running maximum (base 2) and denominator
  for (int token = 0; token < length; ++token) {
    if (!features.sees(token)) continue;
    const StoredRow k_row = stored_row<K>(args.k, block_z(), head / Plan::kGroup, token);
    const StoredRow v_row = stored_row<V>(args.v, block_z(), head / Plan::kGroup, token);
    float k[kKeys], v[kValues], s = 0.f;
    load_row<K>(k_row, k);
    for (int e = 0; e < kKeys; ++e) s += q[e] * k[e];
    if constexpr (K::kHasResidual) {
      load_residuals<K>(k_row, k);
      for (int e = 0; e < kKeys; ++e) s += q_second[e] * k[e];
    }
    for (int mask = 16; mask > 0; mask >>= 1) s += shfl_xor(s, mask);
    s = features.score(s, token);

    const float renewed = larger(m, s), keep = exp2_fast(m - renewed), p = exp2_fast(s - renewed);
    m = renewed;
    d = d * keep + p;
    load_row<V>(v_row, v);
    for (int e = 0; e < kValues; ++e) out[e] = out[e] * keep + p * v[e];
    if constexpr (V::kHasResidual) {
      load_residuals<V>(v_row, v);
      for (int e = 0; e < kValues; ++e) out_second[e] = out_second[e] * keep + p * v[e];
    }
  }

  const float keep = features.finish(m, d);
  const float factor = d > 0.f ? args.value_scale * keep / d : 0.f;
  for (int e = 0; e < kValues; ++e) {
    const int i = e * 32 + lane();
    if (V::kStored % 32 == 0 || i < V::kStored) Plan::store(args.out.data, to + i, out[e] * factor);
    if constexpr (V::kHasResidual) Plan::store(args.out.data, to + V::kStored + i, out_second[e] * factor);
  }
}

}  // namespace kv
