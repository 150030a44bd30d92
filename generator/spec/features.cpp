// FeatureSet: names, types and costs of features.
// SPDX-License-Identifier: MIT
#include "generator/spec/features.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

namespace kvjit {
namespace {

struct Named {
  const char* name;
  bool FeatureSet::*flag;
};
// Features that change scores, in the order in which they do so (ggml's); then those that change the end of a row.
constexpr Named kNamed[] = {{"alibi", &FeatureSet::alibi},
                            {"mask", &FeatureSet::mask},
                            {"mask_slopes", &FeatureSet::mask_slopes},
                            {"packed_mask", &FeatureSet::packed_mask},
                            {"position_offset", &FeatureSet::position_offset},
                            {"token_ranges", &FeatureSet::token_ranges},
                            {"sinks", &FeatureSet::sinks},
                            {"lse", &FeatureSet::lse}};

const char* flag_text(bool value) { return value ? "true" : "false"; }
std::string edge(int tokens) { return tokens < 0 ? "all" : std::to_string(tokens); }

}  // namespace

bool FeatureSet::any() const {
  return softcap > 0 || has_window() || has_hook() ||
         std::any_of(std::begin(kNamed), std::end(kNamed), [this](const Named& n) { return this->*n.flag; });
}

bool FeatureSet::leaves_unseen(bool causal) const {
  return token_ranges || window_left >= 0 || (seen_right(causal) >= 0 && position_offset);
}

long long FeatureSet::most_seen(bool causal, int query_length) const {
  const int right = seen_right(causal);
  if (window_left < 0 || (right < 0 && position_offset)) return -1;
  return static_cast<long long>(window_left) + query_length + (position_offset ? right : 0);
}

std::string FeatureSet::id() const {
  std::string text;
  if (softcap > 0) text += fmt::format("softcap{}.", softcap);
  if (has_window()) text += fmt::format("window_{}_{}.", edge(window_left), edge(window_right));
  if (has_hook()) text += fmt::format("hook_{}.", hook.name);
  for (const Named& n : kNamed)
    if (this->*n.flag) text += fmt::format("{}.", n.name);
  std::erase(text, '+');  // of an exponent: file names have none
  return text;
}

std::vector<std::string> FeatureSet::names() const {
  std::vector<std::string> names;
  if (softcap > 0) names.push_back(fmt::format("softcap {}", softcap));
  if (has_window()) names.push_back(fmt::format("window [{}, {}]", window_left, window_right));
  if (has_hook()) names.push_back("hook " + hook.name);
  for (const Named& n : kNamed)
    if (this->*n.flag) names.emplace_back(n.name);
  return names;
}

const std::vector<std::string>& feature_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all = {"causal"};
    for (const Named& n : kNamed) all.emplace_back(n.name);
    return all;
  }();
  return names;
}

void set_feature(FeatureSet& set, const std::string& name) {
  for (const Named& n : kNamed)
    if (name == n.name) set.*n.flag = true;
}

const char* const kRangeCost = "costs nothing a score but where a tile is cut: two instructions.";

std::vector<FeatureUse> feature_uses(const FeatureSet& set, int query_length) {
  std::vector<FeatureUse> uses;
  if (set.softcap > 0)
    uses.push_back({"softcap", "Softcap<SoftcapNumbers>", "features/softcap.cuh",
                    "costs an exp2, a reciprocal and four more instructions a score: tanh by 1 - 2 / (e^2x + 1), exact "
                    "to 2^-22 of the cap (the machine's own tanh: 2^-11)."});
  if (set.alibi)
    uses.push_back(
        {"alibi", "Alibi", "features/alibi.cuh", "costs a subtraction, a conversion and a multiply-add a score."});
  if (set.has_hook())
    uses.push_back({"hook " + set.hook.name, "Hook<HookExpression>", "features/hook.cuh",
                    "costs two multiplications and a selection a score, and what the expression costs."});
  if (set.mask)
    uses.push_back({set.mask_slopes ? "mask_slopes" : "mask", fmt::format("Mask<{}>", flag_text(set.mask_slopes)),
                    "features/mask.cuh",
                    "costs a load of two bytes, a conversion and a multiply-add a score, in prefill a comparison and a "
                    "choice, too: minus infinity hides a token whatever its score is."});
  if (set.packed_mask)
    uses.push_back(
        {"packed_mask", "PackedMask", "features/packed_mask.cuh", "costs a load, a shift and a choice a score."});
  if (set.sinks) uses.push_back({"sinks", "Sinks", "features/sinks.cuh", "costs nothing a score; a load a row."});
  if (set.lse)
    uses.push_back({"lse", fmt::format("Lse<{}>", query_length), "features/lse.cuh",
                    "costs nothing a score; a logarithm and a store a row."});
  return uses;
}

std::string feature_list(const FeatureSet& set, bool causal, int query_length) {
  std::string text = fmt::format("Features<SeenRange<{}, {}, {}, {}, {}>", query_length, set.window_left,
                                 set.seen_right(causal), flag_text(set.position_offset), flag_text(set.token_ranges));
  for (const FeatureUse& use : feature_uses(set, query_length)) text += ", " + use.type;
  return text + ">";
}

Result<std::vector<float>> alibi_slopes(float max_bias, int heads) {
  constexpr int kMostHeads = 65536;
  if (heads < 1 || heads > kMostHeads)
    return fail(Code::bad_input, fmt::format("slopes of {} heads; 1 to {} are possible", heads, kMostHeads));
  constexpr float kMostBias = 126;  // the last slope, 2^-max_bias, is a normal float
  if (!(max_bias >= 0 && max_bias <= kMostBias))
    return fail(Code::bad_input, fmt::format("max_bias {}; 0 to {} are possible", max_bias, kMostBias));
  const int power = static_cast<int>(std::bit_floor(static_cast<unsigned>(heads)));
  const float first = std::pow(2.f, -max_bias / static_cast<float>(power)),
              rest = std::pow(2.f, -max_bias / 2.f / static_cast<float>(power));
  std::vector<float> slopes;
  for (int h = 0; h < heads; ++h)
    slopes.push_back(max_bias == 0 ? 1.f
                     : h < power   ? std::pow(first, static_cast<float>(h + 1))
                                   : std::pow(rest, static_cast<float>(2 * (h - power) + 1)));
  return slopes;
}

}  // namespace kvjit
