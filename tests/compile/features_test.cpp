// Decode with every feature that a spec may add, through NVRTC: each spec for one arch, the next spec for the next one
// (KVJIT_FULL=1: for every arch). Each kernel must compile without spills and without a stack frame (teams of warps:
// few spills). Needs no GPU.
// SPDX-License-Identifier: MIT
#include <cstdlib>

#include "tests/compile/kernels.hpp"

namespace kvjit::test {
namespace {

// The specs that are compiled for an arch: every third, from another one on for each kind of arch.
std::vector<Spec> in_turn(const std::vector<Spec>& specs, const std::string& arch) {
  if (std::getenv("KVJIT_FULL") != nullptr) return specs;
  std::vector<Spec> some;
  for (std::size_t i = arch == "sm_90a" ? 1 : arch == "sm_120a" ? 2 : 0; i < specs.size(); i += 3)
    some.push_back(specs[i]);
  return some;
}

TEST_CASE("sparse V and append: no spills, no stack") {
  const Registry registry = must(Registry::load(embedded_files()));
  const auto specs =
      must(parse_specs("[k]\n[v]\n[attention]\nappend = true\nsparse_v = 1e-3\nq_heads_per_kv = 8\n[matrix]\n"
                       "\"k.format\" = [\"f16\", \"q8_0\", \"kv4\"]\n\"v.format\" = [\"q4_0\", \"tbq4_0\", \"kv2\"]\n",
                       "features"));
  Kernels kernels;
  for (const char* arch : {"sm_75", "sm_90a", "sm_120a"}) {
    if (!is_known(arch)) continue;
    for (const Spec& spec : in_turn(specs, arch))
      kernels.add(must(make_program(must(resolve(spec, registry, arch)), registry)).kernels.at(Role::decode));
  }
  kernels.compile(kThreads);
}

TEST_CASE("features of scores, all together: no spills, no stack") {
  const Registry registry = must(Registry::load(embedded_files()));
  const auto specs = must(parse_specs(
      "[k]\n[v]\n[attention]\nq_heads_per_kv = 8\nsoftcap = 30\nwindow = [100, -1]\nfeatures = [\"causal\", \"mask\", "
      "\"mask_slopes\", \"packed_mask\", \"position_offset\", \"sinks\", \"lse\"]\n[matrix]\n\"k.format\" = "
      "[\"f16\", \"kv4\"]\n\"v.format\" = [\"tbq4_0\", \"kv2\"]\n\"attention.query_length\" = [1, 2]\n",
      "features"));
  Kernels kernels;
  for (const char* arch : {"sm_75", "sm_90a", "sm_120a"}) {
    if (!is_known(arch)) continue;
    for (const Spec& spec : in_turn(specs, arch)) {
      const ProgramSource program = must(make_program(must(resolve(spec, registry, arch)), registry));
      for (const Role role : {Role::decode, Role::reference, Role::merge_contexts})
        kernels.add(program.kernels.at(role));
    }
  }
  kernels.compile(kThreads);
}

// Teams of warps hold the output in registers. Some spill a few values, around the loop and not in it.
TEST_CASE("many query rows: few spills") {
  constexpr int kMostSpilled = 32;  // bytes; 64 query rows of K q8_0 with V q8_0 on sm_80
  const Registry registry = must(Registry::load(embedded_files()));
  const auto specs =
      must(parse_specs("[k]\n[v]\n[attention]\nq_heads_per_kv = 8\n[matrix]\n\"k.format\" = [\"f16\", \"q8_0\", "
                       "\"kv4\"]\n\"v.format\" = "
                       "[\"q8_0\", \"kv4\"]\n\"attention.query_length\" = [4, 8]\n",
                       "teams"));
  Kernels kernels;
  for (const char* arch : {"sm_80", "sm_90a", "sm_120a"}) {
    if (!is_known(arch)) continue;
    for (const Spec& spec : in_turn(specs, arch))
      kernels.add(must(make_program(must(resolve(spec, registry, arch)), registry)).kernels.at(Role::decode));
  }
  kernels.compile(kThreads, kMostSpilled);
}

TEST_CASE("caches of pages: no spills, no stack") {
  const Registry registry = must(Registry::load(embedded_files()));
  const auto specs = must(parse_specs(
      "[k]\n[v]\nformat = \"tbq4_0\"\n[attention]\nq_heads_per_kv = 8\n[cache]\nlayout = \"paged\"\n[matrix]\n"
      "\"k.format\" = [\"f16\", \"kv4\", \"tbq3_0\"]\n\"cache.page_tokens\" = [8, 64]\n"
      "\"cache.page_layout\" = [\"planar\", \"rows\"]\n",
      "pages"));
  Kernels kernels;
  for (const char* arch : {"sm_75", "sm_90a"}) {
    if (!is_known(arch)) continue;
    for (const Spec& spec : specs)
      kernels.add(must(make_program(must(resolve(spec, registry, arch)), registry)).kernels.at(Role::decode));
  }
  kernels.compile(kThreads);
}

}  // namespace
}  // namespace kvjit::test
