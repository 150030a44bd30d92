// Every pair of formats for every architecture through NVRTC: it compiles, nothing spills, nothing is on the
// stack. No GPU.
// SPDX-License-Identifier: MIT
#include "tests/compile/kernels.hpp"

namespace kvjit::test {
namespace {

constexpr const char* kArchs[] = {"sm_75",   "sm_80",   "sm_86",   "sm_89",  "sm_90a",
                                  "sm_100a", "sm_103a", "sm_120a", "sm_121a"};
constexpr const char* kFormats = "\"f16\", \"bf16\", \"q8_0\", \"q4_0\", \"tbq4_0\"";
constexpr unsigned kThreads = 2;

std::string matrix(const char* layout) {
  return fmt::format(
      "[k]\n[v]\n[cache]\nlayout = \"{}\"\n[matrix]\n\"k.format\" = [{}]\n\"v.format\" = "
      "[{}]\n\"attention.head_dim\" = [64, 128, 256]\n"
      "\"attention.q_heads_per_kv\" = [1, 4, 8]\n",
      layout, kFormats, kFormats);
}

TEST_CASE("25 pairs x head_dim x GQA for every arch: no spills, no stack") {
  const Registry registry = must(Registry::load(embedded_files()));
  const auto specs = must(parse_specs(matrix("planar"), "matrix"));
  Kernels kernels;
  std::size_t combinations = 0;
  for (const char* arch : kArchs) {
    if (!is_known(arch)) continue;
    for (const Spec& spec : specs) {
      // A head of 64 holds no whole block of tbq4_0; resolve() refuses it, and its own test says how.
      if (spec.head_dim == 64 && (spec.k.format == "tbq4_0" || spec.v.format == "tbq4_0")) continue;
      ++combinations;
      const ProgramSource program = must(make_program(must(resolve(spec, registry, arch)), registry));
      for (const auto& [role, source] : program.kernels)
        // The reference kernel loops over the group, so one group stands for all.
        if (role != Role::reference || spec.q_heads_per_kv == 4) kernels.add(source);
    }
  }
  kernels.compile(kThreads);
  std::printf("%zu programs\n", combinations);
}

}  // namespace
}  // namespace kvjit::test
