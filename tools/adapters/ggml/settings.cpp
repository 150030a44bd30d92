// Reads the environment: see settings.hpp.
// SPDX-License-Identifier: MIT
#include "settings.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace kvjit::plugin {
namespace {

constexpr Way kWays[] = {Way::hook, Way::symbol, Way::graph, Way::device};

Settings read_settings() {
  const auto variable = [](const char* name) {
    const char* const value = std::getenv(name);
    return std::string(value ? value : "");
  };
  Settings settings;
  settings.prints_stats = variable("KVJIT_GGML_STATS") == "1";
  if (const std::string name = variable("KVJIT_GGML_REGISTRY"); !name.empty()) settings.registry = name;
  const std::string words = variable("KVJIT_GGML");
  for (std::string_view rest = words; !rest.empty();) {
    const std::string_view word = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(word.size() + 1, rest.size()));
    bool is_way = false;
    for (const Way way : kWays)
      if (word == to_string(way)) settings.way = way, is_way = true;
    if (word == "off")
      settings.is_off = true;
    else if (word == "all")
      settings.takes_all = true;
    else if (!is_way)
      settings.unknown_word = word;
  }
  return settings;
}

}  // namespace

const char* to_string(Way way) {
  constexpr const char* kNames[] = {"hook", "symbol", "graph", "device"};
  return kNames[int(way)];
}

const Settings& settings() {
  static const Settings settings = read_settings();
  return settings;
}

void say(const std::string& line) { fmt::print(stderr, "kvjit: {}\n", line); }

}  // namespace kvjit::plugin
