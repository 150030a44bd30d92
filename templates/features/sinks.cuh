// Sinks: a logit of each query head that counts in the maximum and in the denominator, and has no value. It joins a row
// once, when all KV splits of the row are merged. A call may leave the sinks to another call over another part of the
// context (FeatureArgs::sinks is null).
// SPDX-License-Identifier: MIT
#pragma once
#include "features/feature_list.cuh"

namespace kv {

struct Sinks : FeatureDefaults<Sinks> {
  static constexpr bool kChangesScores = false;
  struct End {
    float sink;  // the logit, base 2; minus infinity if another call counts it
  };
  KV_DEVICE static End end(const FeatureArgs& args, const QueryRow& at) {
    return {args.sinks ? args.sinks[at.head] * kLog2E : minus_infinity()};
  }
  KV_DEVICE static void finish(RowTotal& total, const End& end, bool) {
    if (end.sink == minus_infinity()) return;
    // The maximum of a row that has seen no token is no score: a sink may be lower.
    const float seen = total.denominator == 0.f ? minus_infinity() : total.row_max;
    const float row_max = larger(seen, end.sink), rescale_factor = exp2_fast(seen - row_max);
    total.denominator = total.denominator * rescale_factor + exp2_fast(end.sink - row_max);
    total.rescale_factor *= rescale_factor;
    total.row_max = row_max;
  }
};

}  // namespace kv
