// FeatureSet: how an attention call changes its scores (beyond q.k times the scale) and its rows. Each feature is one
// fragment of templates/features. features.cpp has the cost of each feature as text, because `kvjit explain` prints it.
// SPDX-License-Identifier: MIT
#pragma once
#include <string>
#include <vector>

#include "generator/base/result.hpp"
#include "generator/spec/hook.hpp"

namespace kvjit {

constexpr int kMostWindow = 1 << 29;  // tokens to either side, so that position plus window fits an int

struct FeatureSet {
  double softcap = 0;                       // scores become softcap * tanh(score / softcap); 0: they do not
  int window_left = -1, window_right = -1;  // how many tokens before and after itself a query sees; -1: all
  Hook hook;                                // without a name: none
  bool alibi = false;                       // adds slope * (token - position)
  bool mask = false, mask_slopes = false;   // adds a mask; multiplies it by a slope of each query head
  bool packed_mask = false;                 // a mask of one bit a token
  bool position_offset = false;             // queries may have other positions than those of the last tokens
  bool token_ranges = false;                // a call says which range of tokens each sequence's queries see
  bool sinks = false, lse = false;          // a sink logit a query head; the lse of each row is written

  bool operator==(const FeatureSet&) const = default;

  bool has_window() const { return window_left >= 0 || window_right >= 0; }
  bool has_hook() const { return !hook.name.empty(); }
  bool has_slopes() const { return alibi || mask_slopes; }
  bool any() const;
  // How many tokens after itself a query sees, causal or not; -1: all.
  int seen_right(bool causal) const { return causal ? 0 : window_right; }
  // Whether some tokens of a sequence may be seen by no query of a call, by their position: kCutsTiles of
  // templates/features/token_range.cuh.
  bool leaves_unseen(bool causal) const;
  // The most tokens that the queries of a call see together; -1: no limit.
  long long most_seen(bool causal, int query_length) const;
  std::string id() const;                  // "softcap50.mask.": for names of programs and kernels
  std::vector<std::string> names() const;  // "softcap 50", "mask": for reports
};

// The names that attention.features takes. Features with a value (softcap, window, hook) have keys of their own.
const std::vector<std::string>& feature_names();
// Sets the feature of a name. "causal" changes nothing, because it is no member of the set.
void set_feature(FeatureSet& set, const std::string& name);

// A feature as emitters and reports need it.
struct FeatureUse {
  std::string name;      // "mask": as specs and reports say it
  std::string type;      // "Mask<false>": the type that the emitted plan lists
  std::string fragment;  // "features/mask.cuh": defines the type
  std::string cost;      // "costs a load ... a score": counted in its fragment's instructions
};
// The cost of SeenRange (templates/features/token_range.cuh), with which every list of features begins.
extern const char* const kRangeCost;
std::vector<FeatureUse> feature_uses(const FeatureSet& set, int query_length);
// The type Features<...> of templates/features/feature_list.cuh: the range of tokens that a query sees, then the types
// of all features.
std::string feature_list(const FeatureSet& set, bool causal, int query_length);

// The ALiBi slope of each query head, as in ggml. n is the largest power of two up to `heads`. The first n heads have
// 2^(-max_bias / n) to the power of 1, 2, ..; the rest have 2^(-max_bias / (2 n)) to the power of 1, 3, 5, .. If
// max_bias is 0, all slopes are 1.
Result<std::vector<float>> alibi_slopes(float max_bias, int heads);

}  // namespace kvjit
