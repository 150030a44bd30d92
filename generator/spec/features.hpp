// FeatureSet: what an attention call does to its scores beyond q.k times the scale, and to its rows. Each feature is
// one fragment of templates/features. What it costs stands here, because `kvjit explain` prints it.
// SPDX-License-Identifier: MIT
#pragma once
#include <string>
#include <vector>

#include "generator/base/result.hpp"
#include "generator/spec/hook.hpp"

namespace kvjit {

constexpr int kMostWindow = 1 << 29;  // tokens to either side: position and window add up to an int

struct FeatureSet {
  double softcap = 0;                       // 0: none
  int window_left = -1, window_right = -1;  // tokens before and behind the query that it sees; -1: all
  Hook hook;                                // of no name: none
  bool alibi = false;                       // slope * (token - position)
  bool mask = false, mask_slopes = false;   // additive; times a slope of each query head
  bool packed_mask = false;                 // bits
  bool position_offset = false;             // queries may stand elsewhere than at the newest tokens
  bool sinks = false, lse = false;

  bool operator==(const FeatureSet&) const = default;

  bool has_window() const { return window_left >= 0 || window_right >= 0; }
  bool has_hook() const { return !hook.name.empty(); }
  bool has_slopes() const { return alibi || mask_slopes; }
  bool any() const;
  // Tokens behind the query that it sees, causal or not; -1: all.
  int seen_right(bool causal) const { return causal ? 0 : window_right; }
  // Tokens that the queries of a call see together, at most; -1: as many as there are.
  long long most_seen(bool causal, int query_length) const;
  std::string id() const;                  // "softcap50.mask.": for names of programs and kernels
  std::vector<std::string> names() const;  // "softcap 50", "mask": for reports
};

// The names that attention.features takes, beside those of numbers (softcap, window).
const std::vector<std::string>& feature_names();
// Sets what a name stands for; "causal" is no part of the set.
void set_feature(FeatureSet& set, const std::string& name);

// A feature of a plan.
struct FeatureUse {
  std::string name;      // "mask": as specs and reports say it
  std::string type;      // "Mask<false>": the type that the emitted plan lists
  std::string fragment;  // "features/mask.cuh": defines the type
  std::string cost;      // "costs a load ... a score": counted in its fragment's instructions
};
// The cost of SeenRange (features/token_range.cuh), which every list of features begins with.
extern const char* const kRangeCost;
std::vector<FeatureUse> feature_uses(const FeatureSet& set, int query_length);
// The types of all, and of the range of tokens that a query sees, as templates/features/feature_list.cuh takes them.
std::string feature_list(const FeatureSet& set, bool causal, int query_length);

// The slope of each query head, as ggml has them: 2^(-max_bias / n) to the power of 1, 2 .. for the first n heads, n
// the largest power of two up to `heads`; half that exponent, times 1, 3, 5 .. for the rest. max_bias 0: all 1.
Result<std::vector<float>> alibi_slopes(float max_bias, int heads);

}  // namespace kvjit
