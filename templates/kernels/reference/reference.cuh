// reference: attention by its formula. A warp takes one query row and goes through the tokens one after the other, with
// an online softmax. There is no tiling, no tensor core and no split-KV: the kernel is written to be read. Every faster
// family is tested against it. It is itself tested against an oracle in double precision that shares no code with it.
//
// Queries, keys and values are in the rotated domain (formats/rotated_domain.cuh): stored values, then residuals.
// SPDX-License-Identifier: MIT
#pragma once
#include "args/attention.cuh"
#include "device/simt.cuh"
#include "formats/stored_row.cuh"

namespace kv {

// What features say about a query row: which tokens it sees, how its scores change, which scores hide their token, and
// how its sums end. A plan without features has only the first; kernels/reference/features.cuh has all.
template <class Plan>
struct PlainRow {
  int query, length;
  KV_DEVICE bool sees(int token) const { return Plan::Feature::sees(query, token, length); }
  KV_DEVICE float score(float s, int) const { return s; }
  KV_DEVICE bool hides(float) const { return false; }
  KV_DEVICE float finish(float&, float&) const { return 1.f; }  // the factor for the sums of values
};
template <class Plan, class Args>
KV_DEVICE PlainRow<Plan> row_features(const Args&, int, int query, int, int length) {
  return {query, length};
}

// A query row of sequence block_z(). Plans with run-time query lengths have an overload in
// kernels/reference/varlen.cuh.
template <class Plan, class Args>
KV_DEVICE void attend_row(const Args& args, int query, int head) {
  using K = typename Plan::K;
  using V = typename Plan::V;
  constexpr int kKeys = per_lane(K::kStored), kValues = per_lane(V::kStored);
  const int stored_length = args.scheduler.lengths ? args.scheduler.lengths[block_z()] : args.scheduler.tokens,
            length = stored_length < args.scheduler.tokens ? stored_length : args.scheduler.tokens;
  const i64 from = block_z() * args.q.sequence_stride + query * args.q.query_stride + head * args.q.head_stride;
  const i64 to = block_z() * args.out.sequence_stride + query * args.out.query_stride + head * args.out.head_stride;

  float q[kKeys], q_second[kKeys], out[kValues] = {}, out_second[kValues] = {};  // *_second: for the residuals
  for (int e = 0; e < kKeys; ++e) {
    const int i = e * 32 + lane();
    const bool exists = K::kStored % 32 == 0 || i < K::kStored;
    q[e] = exists ? Plan::load_query(args.q.data, from + i) * args.scale_log2 : 0.f;
    if constexpr (K::kHasResidual) q_second[e] = Plan::load_query(args.q.data, from + K::kStored + i) * args.scale_log2;
  }

  const auto features = row_features<Plan>(args, block_z(), query, head, length);
  float m = -1e30f, d = 0.f;  // row_max so far (base 2) and denominator of the softmax
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
    if (features.hides(s)) continue;  // the row of V may hold anything

    const float new_max = larger(m, s), rescale_factor = exp2_fast(m - new_max), p = exp2_fast(s - new_max);
    m = new_max;
    d = d * rescale_factor + p;
    load_row<V>(v_row, v);
    for (int e = 0; e < kValues; ++e) out[e] = out[e] * rescale_factor + p * v[e];
    if constexpr (V::kHasResidual) {
      load_residuals<V>(v_row, v);
      for (int e = 0; e < kValues; ++e) out_second[e] = out_second[e] * rescale_factor + p * v[e];
    }
  }

  const float rescale_factor = features.finish(m, d);
  const float factor = d > 0.f ? args.value_scale * rescale_factor / d : 0.f;
  for (int e = 0; e < kValues; ++e) {
    const int i = e * 32 + lane();
    if (V::kStored % 32 == 0 || i < V::kStored) Plan::store(args.out.data, to + i, out[e] * factor);
    if constexpr (V::kHasResidual) Plan::store(args.out.data, to + V::kStored + i, out_second[e] * factor);
  }
}

template <class Plan, class Args>
KV_DEVICE void reference(const Args& args) {
  const int q_heads = args.scheduler.kv_heads * Plan::kGroup;
  attend_row<Plan>(args, block_x() / q_heads, block_x() % q_heads);
}

}  // namespace kv
