// Lists the names of the formats in specs/formats, and the head_dims that one format or two formats fit. Tests that
// combine every format with every other walk these lists, or with KVJIT_FULL unset every n-th member of them. Which
// members these are depends on the text of all templates, so that changes of kernels are tested with other members each
// time. Records of segments have lists of their own, because they serve few head sizes.
// SPDX-License-Identifier: MIT
#pragma once
#include <algorithm>
#include <cstdlib>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "generator/catalogue/registry.hpp"

namespace kvjit::test {

inline std::vector<std::string> format_names(const Registry& registry) {
  std::vector<std::string> names;
  for (const auto& [name, format] : registry.formats())
    if (!format.has_segments()) names.push_back(name);
  return names;
}
inline std::vector<std::string> record_names(const Registry& registry) {
  std::vector<std::string> names;
  for (const auto& [name, format] : registry.formats())
    if (format.has_segments()) names.push_back(name);
  return names;
}

// Returns the members of `head_dims` that the format fits, in the same order.
inline std::vector<int> fitting(const Registry& registry, const std::string& name, const std::vector<int>& head_dims) {
  std::vector<int> fit;
  std::copy_if(head_dims.begin(), head_dims.end(), std::back_inserter(fit),
               [&](int head_dim) { return registry.format_for(name, head_dim, {}).has_value(); });
  return fit;
}

// Returns the members of `head_dims` that both formats fit, in the same order.
inline std::vector<int> common(const Registry& registry, const std::string& k, const std::string& v,
                               const std::vector<int>& head_dims) {
  return fitting(registry, v, fitting(registry, k, head_dims));
}

// A number that changes with the text of the templates and specs. KVJIT_TURN=n takes n instead: n from 0 to 11 runs
// every member of every list, and repeats what a run with another text has tested.
inline std::size_t turn_of_texts() {
  static const std::size_t turn = [] {
    if (const char* wanted = std::getenv("KVJIT_TURN")) return std::size_t(std::strtoul(wanted, nullptr, 10));
    std::size_t sum = 0;
    for (const auto& [file, text] : embedded_files()) sum = sum * 31 + std::hash<std::string_view>{}(text);
    return sum / 8;
  }();
  return turn;
}

// Returns every n-th member, or all with KVJIT_FULL=1. Calls with another `phase` below n return other members.
template <class T>
std::vector<T> every_nth(const std::vector<T>& all, std::size_t n, std::size_t phase = 0) {
  if (std::getenv("KVJIT_FULL") != nullptr) return all;
  std::vector<T> some;
  for (std::size_t i = (turn_of_texts() + phase) % n; i < all.size(); i += n) some.push_back(all[i]);
  return some;
}

}  // namespace kvjit::test
