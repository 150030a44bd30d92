// The reference kernel of plans with features: PlainRow of kernels/reference/reference.cuh is replaced by one over the
// plan's list of features (features/feature_list.cuh). Overload resolution chooses it by the type of the arguments.
// SPDX-License-Identifier: MIT
#pragma once
#include "args/attention.cuh"
#include "features/feature_list.cuh"
#include "kernels/reference/reference.cuh"

namespace kv {

template <class Plan>
struct FeaturedRow {
  using F = typename Plan::Feature;
  typename F::Row row;
  typename F::End end;
  KV_DEVICE bool sees(int token) const { return F::sees(row, token); }
  KV_DEVICE float score(float s, int token) const { return F::apply(s, row, F::load(row, token), token); }
  KV_DEVICE bool hides(float s) const { return s == minus_infinity(); }
  KV_DEVICE float finish(float& m, float& d) const {
    const RowTotal total = F::finish(m, d, end, lane() == 0);
    m = total.row_max, d = total.denominator;
    return total.rescale_factor;
  }
};
template <class Plan, class Args>
KV_DEVICE FeaturedRow<Plan> row_features(const Featured<Args>& args, int sequence, int query, int head, int length) {
  using F = typename Plan::Feature;
  const QueryRow at =
      F::query_row(args.features, sequence, query, head, args.scheduler.kv_heads * Plan::kGroup, length);
  return {F::row(args.features, at), F::end(args.features, at)};
}

}  // namespace kv
