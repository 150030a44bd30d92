// A kernel that evaluates hooks alone, for tests: every hook at every place, written as decode kernels have hooks.
// SPDX-License-Identifier: MIT
#pragma once
#include <string>
#include <vector>

#include "generator/emit/writer.hpp"
#include "tests/support/registry.hpp"

namespace kvjit::test {

struct HookPlace {
  float score;
  int token, position, query, head, length, sequence;
};
struct HookArgs {
  const HookPlace* places;
  float* values;  // [hook][place]
  int count;      // places
};

// The kernel of hooks with these texts. Fails the test if one is refused.
inline Source hook_kernel(const std::vector<std::string>& texts, const std::string& arch) {
  emit::Writer w = emit::begin(registry(), "hooks." + arch, "values of hooks");
  w.fragment("device/simt.cuh");
  w.line("namespace kv {{\n");
  std::string calls;
  for (std::size_t n = 0; n < texts.size(); ++n) {
    FeatureSet features;
    features.hook = must(parse_hook(texts[n], "specs/hooks/h.cuh"));
    w.line("namespace hook_{} {{", n);
    emit::write_features(w, features);
    w.line("}}");
    calls += fmt::format(
        "    args.values[{0} * args.count + i] = hook_{0}::HookExpression::of(at.score, at.token, at.position, "
        "at.query, "
        "at.head, at.length, at.sequence);\n",
        n);
  }
  w.line("struct HookPlace {{ float score; int token, position, query, head, length, sequence; }};");
  w.line("struct HookArgs {{ const HookPlace* places; float* values; int count; }};");
  w.line("struct Plan {{}};");
  w.line("template <class Plan>\nKV_DEVICE void hooks(const HookArgs& args) {{");
  w.line("  for (int i = 0; i < args.count; ++i) {{\n    const HookPlace at = args.places[i];\n{}  }}\n}}", calls);
  return emit::finish(w, "hooks." + arch, arch, {"hooks", "HookArgs", 32, 0, int(sizeof(HookArgs))});
}

}  // namespace kvjit::test
