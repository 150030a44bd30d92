// Hook: an expression of the user (specs/hooks) computes the score that exp takes. Hidden tokens stay hidden.
// SPDX-License-Identifier: MIT
#pragma once
#include "features/feature_list.cuh"

namespace kv {

template <class Expression>
struct Hook : FeatureDefaults<Hook<Expression>> {
  static constexpr bool kNeedsWhole = true, kMayHide = true;
  struct Row {
    QueryRow at;
  };
  KV_DEVICE static Row row(const FeatureArgs&, const QueryRow& at) { return {at}; }
  // The expression takes and returns natural exponents; scores are base-2 exponents.
  template <class Loaded>
  KV_DEVICE static float apply(float score, const Row& row, const Loaded&, int token) {
    const float changed = kLog2E * Expression::of(score * kLn2, token, row.at.position, row.at.query, row.at.head,
                                                  row.at.length, row.at.sequence);
    return score == minus_infinity() ? score : changed;
  }
};

}  // namespace kv
