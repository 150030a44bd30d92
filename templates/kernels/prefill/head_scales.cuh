// prefill with a scale for each KV head. A block takes work tiles of several heads, so the scales are those of the
// work tile: the rule of its scores multiplies by K's, and the end of a row by V's.
// SPDX-License-Identifier: MIT
#pragma once
#include "args/features.cuh"
#include "kernels/decode/rare/head_scaled.cuh"
#include "kernels/prefill/consumer.cuh"

namespace kv {

template <class Plan, class Rule>
struct HeadScaledRule {
  Rule rule;
  const AttentionArgs& args;
  static constexpr bool kChangesScores = Plan::kScalesKeyHeads || Rule::kChangesScores, kOpensLate = Rule::kOpensLate;

  KV_DEVICE bool applies(const WorkTile& work, int tile) const { return kChangesScores || rule.applies(work, tile); }
  template <int kScores>
  KV_DEVICE void apply(float (&s)[kScores], const WorkTile& work, int row, int tile, float unit) const {
    const float of_head = unit * key_scale<Plan>(args, work.sequence, work.head);
    rule.apply(s, work, row, tile, of_head);
    if constexpr (Plan::kScalesKeyHeads && !Rule::kChangesScores) {
      KV_UNROLL
      for (int i = 0; i < kScores; ++i) s[i] *= of_head;
    }
  }
  KV_DEVICE bool sees(const WorkTile& work, int row, int token) const { return rule.sees(work, row, token); }
  KV_DEVICE float end_row(float reference_max, float& denominator, const WorkTile& work, int row) const {
    return rule.end_row(reference_max, denominator, work, row) * value_scale<Plan>(args, work.sequence, work.head);
  }
};

template <HasHeadScales Plan, class Args>
KV_DEVICE auto head_scaled_rule(const Args& args) {
  using Rule = decltype(rule_of<typename Plan::BarePlan>(args));
  return HeadScaledRule<Plan, Rule>{rule_of<typename Plan::BarePlan>(args), args};
}
template <HasHeadScales Plan, class Args>
KV_DEVICE auto rule_of(const Args& args) {
  return head_scaled_rule<Plan>(args);
}
template <HasHeadScales Plan, class Args>
KV_DEVICE auto rule_of(const Featured<Args>& args) {
  return head_scaled_rule<Plan>(args);
}

}  // namespace kv
