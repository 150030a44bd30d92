// Run-time query lengths through NVRTC: every bucket of decode, merge and prefill. Moving the places of rows must cost
// few registers. Needs no GPU.
// SPDX-License-Identifier: MIT
#include "tests/compile/kernels.hpp"

namespace kvjit::test {
namespace {

TEST_CASE("kernels with run-time query lengths spill little, and on sm_80 nothing where one query attends") {
  constexpr int kMostSpilled = 160;  // bytes
  const Registry registry = must(Registry::load(embedded_files()));
  const auto program = [&](const std::string& format, const std::string& keys, const std::string& arch) {
    const std::string toml = "k = { format = \"" + format + "\" }\nv = { format = \"" + format +
                             "\" }\n[attention]\nq_heads_per_kv = 4\nquery_length = \"any\"\n" + keys;
    return must(make_program(must(resolve(must(parse_specs(toml, format)).front(), registry, arch)), registry));
  };
  const auto attends = [](Role role) { return role == Role::decode || role == Role::prefill || role == Role::merge; };
  Kernels few, none;
  if (is_known("sm_90a"))
    for (const auto& [format, keys] : {std::pair{"kv4", "features = [\"causal\"]"},
                                       {"f16", "features = [\"causal\", \"lse\"]"},
                                       {"q8_0", "[cache]\nlayout = \"paged\"\npage_tokens = 16"}}) {
      const ProgramSource any = program(format, keys, "sm_90a");
      for_each_kernel(any, [&](Role role, const Source& source) {
        if (attends(role)) few.add(source);
      });
    }
  if (is_known("sm_80"))
    none.add(program("tbq4_0", "features = [\"causal\"]", "sm_80").buckets[0].kernels.at(Role::decode));
  if (few.size() > 0) few.compile(kThreads, kMostSpilled);
  if (none.size() > 0) none.compile(kThreads);
}

}  // namespace
}  // namespace kvjit::test
