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

// The group hardly changes a kernel of up to eight rows: each pair, head_dim and arch meets one, in turn. is_complete: all three.
void check_matrix(bool is_complete) {
  const Registry registry = must(Registry::load(embedded_files()));
  const auto specs = must(parse_specs(matrix("planar"), "matrix"));
  Kernels kernels;
  std::size_t combinations = 0, turn = 0;
  for (const char* arch : kArchs) {
    if (!is_known(arch)) continue;
    for (const Spec& spec : specs) {
      const std::size_t group = turn % 3, others = turn++ / 3;  // the group turns fastest, then head_dim
      if (!is_complete && (others + others / 3) % 3 != group) continue;
      // A head of 64 holds no whole block of tbq4_0; resolve() refuses it, and its own test says how.
      if (spec.head_dim == 64 && (spec.k.format == "tbq4_0" || spec.v.format == "tbq4_0")) continue;
      ++combinations;
      const ProgramSource program = must(make_program(must(resolve(spec, registry, arch)), registry));
      for (const auto& [role, source] : program.kernels) kernels.add(source);
    }
  }
  kernels.compile(kThreads);
  std::printf("%zu programs\n", combinations);
}

TEST_CASE("25 pairs x head_dim, GQA in turn, for every arch: no spills, no stack") { check_matrix(false); }

// `--no-skip`: minutes on many cores, half an hour on two.
TEST_CASE("25 pairs x head_dim x GQA for every arch: no spills, no stack" * doctest::skip()) { check_matrix(true); }

}  // namespace
}  // namespace kvjit::test
