// generator/kernels/decode/plan.cpp: which programs have a `merge` kernel for KV splits that decode does not merge, and
// what the kernel does.
// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>

#include "generator/program.hpp"
#include "tests/support/registry.hpp"

namespace kvjit {
namespace {

ProgramSource program_of(const std::string& format, const std::string& attention) {
  const std::string toml =
      fmt::format("[k]\nformat=\"{}\"\n[v]\nformat=\"{}\"\n[attention]\n{}", format, format, attention);
  const auto spec = test::must(parse_specs(toml, "test.toml")).at(0);
  return test::must(make_program(test::must(resolve(spec, test::registry(), "sm_90a")), test::registry()));
}

bool explains_merge(const ProgramSource& program) {
  return std::any_of(program.decisions.begin(), program.decisions.end(),
                     [](const Decision& decision) { return decision.what == "merge"; });
}

}  // namespace

TEST_CASE("a program whose warps have one step of merging has no launch for it; more steps, or fuse = false, have") {
  struct Example {
    const char *format, *attention;
    int steps;
    bool fuses_merge, rotates;
  };
  const Example examples[] = {
      {"kv4", "q_heads_per_kv=8", 1, true, true},
      {"kv4", "q_heads_per_kv=16", 2, true, true},  // 12 warps a block
      {"kv4", "q_heads_per_kv=8\nhead_dim=256", 2, true, true},
      {"q8_0", "q_heads_per_kv=16\nhead_dim_k=576\nhead_dim_v=512", 16, true, false},  // 4 warps a block
      {"kv4", "q_heads_per_kv=8\nfuse=false", 1, false, false},
      {"tbq4_dense_qsfirst_raw", "q_heads_per_kv=16", 2, true, false},
  };
  for (const Example& example : examples) {
    CAPTURE(example.format);
    CAPTURE(example.attention);
    const ProgramSource program = program_of(example.format, example.attention);
    CHECK(program.merge_steps == example.steps);
    CHECK(program.fuses_merge == example.fuses_merge);
    CHECK(program.rotates_output == example.rotates);
    const auto merge = program.kernels.find(Role::merge);
    CHECK((merge != program.kernels.end()) == (!example.fuses_merge || example.steps > 1));
    CHECK(explains_merge(program) == (example.fuses_merge && example.steps > 1));
    if (merge == program.kernels.end()) continue;
    const Source& source = merge->second;
    CHECK(source.may_overlap);
    // If `merge` rotates its output back from V's domain, one block takes a whole row; else a block takes 128 sums of
    // it.
    const int slices = program.v.rotated_dim / 128;
    CHECK(source.row_threads == source.threads * (example.rotates ? 1 : slices));
    CHECK((source.text.str().find("kRotatesOutput = true") != std::string::npos) == example.rotates);
    CHECK((source.text.str().find("kSkipsUnsplit = true") != std::string::npos) == example.fuses_merge);
  }
}

}  // namespace kvjit
