// LSE: stores the natural logarithm of the sum of exp(score) of each row. Sinks are included where they join the row. A
// row that sees no token and has no sink stores minus infinity. kernels/auxiliary/merge_contexts.cuh weights outputs
// over parts of a context by their LSE.
// SPDX-License-Identifier: MIT
#pragma once
#include "device/math.cuh"
#include "features/feature_list.cuh"

namespace kv {

template <int kQueries>
struct Lse : FeatureDefaults<Lse<kQueries>> {
  static constexpr bool kChangesScores = false;
  struct End {
    float* lse;  // the place of the row's LSE in memory
  };
  KV_DEVICE static End end(const FeatureArgs& args, const QueryRow& at) {
    return {args.lse + (i64(at.sequence) * kQueries + at.query) * at.heads + at.head};
  }
  KV_DEVICE static void finish(RowTotal& total, const End& end, bool is_first) {
    if (!is_first) return;
    *end.lse = total.denominator > 0.f ? (total.row_max + log2_fast(total.denominator)) * kLn2 : minus_infinity();
  }
};

}  // namespace kv
