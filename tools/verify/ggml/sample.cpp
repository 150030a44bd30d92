// Chooses greedy samples of ggml's case matrix: see sample.hpp.
// SPDX-License-Identifier: MIT
#include "tools/verify/ggml/sample.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "tools/verify/uniform.hpp"

namespace kvjit {

using Value = std::pair<std::string, std::string>;  // name of an axis, and the value there

std::map<std::string, std::string> ggml_axes(const GgmlCase& one) {
  const auto is = [](bool yes) { return std::string(yes ? "yes" : "no"); };
  return {{"K type", one.k},
          {"V type", one.v},
          {"head sizes", fmt::format("{}/{}", one.head_dim_k, one.head_dim_v)},
          {"KV heads", std::to_string(one.kv_heads)},
          {"GQA", std::to_string(one.gqa)},
          {"sequences", std::to_string(one.repeats)},
          {"tokens", std::to_string(one.tokens)},
          {"batch", std::to_string(one.batch)},
          {"mask", is(one.has_mask)},
          {"sinks", is(one.has_sinks)},
          {"max_bias", fmt::format("{}", one.max_bias)},
          {"softcap", fmt::format("{}", one.softcap)},
          {"precision", one.is_default_precision ? "default" : "f32"},
          {"permuted", is(one.is_permuted)},
          {"V a view", is(one.v_is_view)},
          {"dense", is(one.is_dense)}};
}

double ggml_work(const GgmlCase& one) {
  return double(one.kv_heads) * one.gqa * one.repeats * one.batch * one.tokens * (one.head_dim_k + one.head_dim_v);
}

std::vector<GgmlCase> ggml_sample(const std::vector<GgmlCase>& cases, std::size_t count, std::uint64_t seed) {
  struct Candidate {
    const GgmlCase* one;
    std::vector<int*> counts;  // for each of its values, how many cases of the sample have it
  };
  std::map<Value, int> chosen;
  std::vector<Candidate> left;
  for (const GgmlCase& one : cases) {
    Candidate& candidate = left.emplace_back(Candidate{&one, {}});
    for (const auto& value : ggml_axes(one)) candidate.counts.push_back(&chosen[value]);
  }
  Uniform random(seed);
  for (std::size_t i = left.size(); i > 1; --i) std::swap(left[i - 1], left[random.bits() % i]);

  std::vector<GgmlCase> sample;
  while (sample.size() < count && !left.empty()) {
    std::size_t best = 0;
    double most = -1;
    for (std::size_t i = 0; i < left.size(); ++i) {
      double lack = 0;
      for (const int* of_value : left[i].counts) lack += 1. / ((1 + *of_value) * (1 + *of_value));
      if (lack > most) most = lack, best = i;
    }
    sample.push_back(*left[best].one);
    for (int* of_value : left[best].counts) ++*of_value;
    left[best] = std::move(left.back());
    left.pop_back();
  }
  return sample;
}

std::vector<GgmlCase> ggml_sample_of_programs(const std::vector<GgmlCase>& cases, std::size_t count, double most_work) {
  constexpr double kOfCase = 0.05;      // added to a program's score for each of its cases
  constexpr double kOf1e9Products = 1;  // subtracted from the score for 1e9 multiplications of its cases
  std::map<std::string, std::vector<const GgmlCase*>> programs;
  for (const GgmlCase& one : cases)
    if (ggml_work(one) <= most_work) programs[one.served_by().toml()].push_back(&one);
  std::map<Value, int> chosen;  // how many chosen programs have a value
  std::vector<GgmlCase> sample;
  while (!programs.empty()) {
    auto best = programs.begin();
    double most = -1e300;
    std::set<Value> best_values;
    bool is_new = false;
    for (auto at = programs.begin(); at != programs.end(); ++at) {
      std::set<Value> values;
      double gain = 0;
      for (const GgmlCase* one : at->second) {
        for (const auto& value : ggml_axes(*one)) values.insert(value);
        gain += kOfCase - kOf1e9Products * ggml_work(*one) / 1e9;
      }
      bool has_new = false;
      for (const Value& value : values) {
        gain += 1. / ((1 + chosen[value]) * (1 + chosen[value]));
        has_new |= chosen[value] == 0;
      }
      if (sample.size() >= count && !has_new) continue;
      if (gain > most) most = gain, best = at, best_values = values, is_new = has_new;
    }
    if (sample.size() >= count && !is_new) break;
    for (const GgmlCase* one : best->second) sample.push_back(*one);
    for (const Value& value : best_values) ++chosen[value];
    programs.erase(best);
  }
  return sample;
}

std::set<Value> ggml_left_out(const std::vector<GgmlCase>& cases, const std::vector<GgmlCase>& sample) {
  std::set<Value> values;
  for (const GgmlCase& one : cases)
    for (const auto& value : ggml_axes(one)) values.insert(value);
  for (const GgmlCase& one : sample)
    for (const auto& value : ggml_axes(one)) values.erase(value);
  return values;
}

}  // namespace kvjit
