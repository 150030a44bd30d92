// Decode of token-major heads (cache.token_heads) through NVRTC: blocks of 16 warps with 128 registers a lane must not
// spill.
// SPDX-License-Identifier: MIT
#include "tests/compile/kernels.hpp"

namespace kvjit::test {
namespace {

TEST_CASE("token-major heads: no spills, no stack") {
  const struct {
    const char *k, *v;
    int q_heads_per_kv, token_heads;
    const char* feature = "causal";
  } kRows[] = {{"kv4", "kv4", 4, 8},       {"tbq4_0", "tbq4_0", 4, 8},     {"tbq4_0", "tbq4_0", 8, 8},
               {"q8_0", "q4_0", 4, 8},     {"q4_1", "q8_0", 1, 2},         {"f16", "f16", 4, 8},
               {"kv3", "turbo3_0", 8, 16}, {"q4_0", "q4_0", 4, 8, "mask"}, {"q8_0", "q8_0", 4, 8, "mask"}};
  const Registry registry = must(Registry::load(embedded_files()));
  Kernels kernels;
  for (const char* arch : {"sm_90a", "sm_100a"}) {
    if (!is_known(arch)) continue;
    for (const auto& row : kRows) {
      const std::string toml = fmt::format(
          "[k]\nformat = \"{}\"\n[v]\nformat = \"{}\"\n[attention]\nq_heads_per_kv = {}\nfeatures = "
          "[\"{}\"]\n[cache]\nlayout = \"rows\"\ntoken_heads = {}\n",
          row.k, row.v, row.q_heads_per_kv, row.feature, row.token_heads);
      const Problem problem = must(resolve(must(parse_specs(toml, "heads")).at(0), registry, arch));
      const ProgramSource program = must(make_program(problem, registry));
      for (const Role role : {Role::decode, Role::merge}) kernels.add(program.kernels.at(role));
    }
  }
  kernels.compile(kThreads);
}

}  // namespace
}  // namespace kvjit::test
