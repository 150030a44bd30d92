// Settings are read from the environment.
//
//   KVJIT_GGML            words, separated by commas: off; one way in, and no other (hook, symbol, graph, device); all,
//                         to take every node that kvjit serves, whatever the policy says
//   KVJIT_GGML_REGISTRY   libggml-kvjit.so: the registry whose devices are decorated; CUDA if it is not set
//   KVJIT_GGML_STATS      1: counts are printed when the process ends
// SPDX-License-Identifier: MIT
#pragma once
#include <optional>
#include <string>

namespace kvjit::plugin {

// The ways in, the best first.
enum class Way {
  hook,    // a function that a patched ggml-cuda asks for
  symbol,  // ggml-cuda's call of its own attention comes to the plugin
  graph,   // graphs are cut at attention
  device   // a device of the plugin's own
};
const char* to_string(Way way);

struct Settings {
  bool is_off = false, takes_all = false, prints_stats = false;
  std::optional<Way> way;  // the only one that is tried
  std::string registry = "CUDA";
  std::string unknown_word;  // of KVJIT_GGML; "" if there is none
};
const Settings& settings();

// Prints one line to stderr.
void say(const std::string& line);

}  // namespace kvjit::plugin
