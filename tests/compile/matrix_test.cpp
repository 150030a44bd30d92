// 25 combinations of K and V formats for every arch through NVRTC. Each kernel must compile without spills and without
// a stack frame. The codec kernels of a format do not depend on the format of the other side: they are compiled with
// the combination of the format with itself. Needs no GPU.
// SPDX-License-Identifier: MIT
#include <cstdlib>
#include <map>

#include "tests/compile/kernels.hpp"

namespace kvjit::test {
namespace {

constexpr const char* kArchs[] = {"sm_75",   "sm_80",   "sm_86",   "sm_89",  "sm_90a",
                                  "sm_100a", "sm_103a", "sm_120a", "sm_121a"};
// Archs that differ from one above in threads a multiprocessor, or in the instructions that the compiler may use. Each
// pair is compiled for one of them in turn, to keep the test short.
constexpr const char* kSimilarArchs[] = {"sm_87", "sm_90", "sm_100", "sm_103", "sm_110", "sm_110a", "sm_120", "sm_121"};
constexpr const char* kFormats = "\"f16\", \"bf16\", \"q8_0\", \"q4_0\", \"tbq4_0\"";
// The kernels that depend on both sides of the cache.
const std::set<Role> kAttention = {Role::rotate_q, Role::decode, Role::merge, Role::rotate_out, Role::reference};

std::string matrix(const char* layout) {
  return fmt::format(
      "[k]\n[v]\n[cache]\nlayout = \"{}\"\n[matrix]\n\"k.format\" = [{}]\n\"v.format\" = "
      "[{}]\n\"attention.head_dim\" = [64, 128, 256]\n"
      "\"attention.q_heads_per_kv\" = [1, 4, 8]\n",
      layout, kFormats, kFormats);
}

// is_complete: each format combination and arch is compiled with every head_dim and GQA group. Otherwise it is compiled
// with one of them, and the next combination or arch with the next one; a combination of two formats is compiled for
// every sixth arch.
void check_matrix(bool is_complete) {
  const Registry registry = must(Registry::load(embedded_files()));
  std::map<std::pair<std::string, std::string>, std::vector<Spec>> pairs;
  for (const Spec& spec : must(parse_specs(matrix("planar"), "matrix"))) {
    // A head of 64 values holds no whole block of tbq4_0; resolve() refuses it (tests/specs/fail/head_dim_block.toml).
    if (spec.head_dim == 64 && (spec.k.format == "tbq4_0" || spec.v.format == "tbq4_0")) continue;
    pairs[{spec.k.format, spec.v.format}].push_back(spec);
  }
  Kernels kernels;
  std::size_t combinations = 0, turn = 0;
  const auto add = [&](const char* arch, const auto& pair, const std::vector<Spec>& specs) {
    ++turn;
    for (std::size_t i = 0; i < specs.size(); ++i) {
      if (!is_complete && i != turn % specs.size()) continue;
      ++combinations;
      const ProgramSource program = must(make_program(must(resolve(specs[i], registry, arch)), registry));
      for (const auto& [role, source] : program.kernels)
        if (pair.first == pair.second || kAttention.count(role)) kernels.add(source);
    }
  };
  std::size_t next = 0;
  for (const char* arch : kArchs) {
    ++next;  // other pairs than for the arch before
    for (const auto& [pair, specs] : pairs)
      if (is_known(arch) && (is_complete || pair.first == pair.second || next++ % 6 == 0)) add(arch, pair, specs);
  }
  next = 0;
  for (const auto& [pair, specs] : pairs) {
    const std::size_t count = is_complete ? std::size(kSimilarArchs) : 1;
    for (std::size_t i = 0; i < count; ++i)
      if (const char* arch = kSimilarArchs[next++ % std::size(kSimilarArchs)]; is_known(arch)) add(arch, pair, specs);
  }
  kernels.compile(kThreads);
  std::printf("%zu programs\n", combinations);
}

TEST_CASE("25 pairs, head_dim and GQA in turn: no spills, no stack") { check_matrix(false); }

// Needs KVJIT_FULL=1: it takes minutes on many cores and half an hour on two.
TEST_CASE("25 pairs x head_dim x GQA for every arch: no spills, no stack" *
          doctest::skip(std::getenv("KVJIT_FULL") == nullptr)) {
  check_matrix(true);
}

}  // namespace
}  // namespace kvjit::test
