// The kernels of every axis of a format through NVRTC, for the oldest and the newest kind of GPU that has a test machine: they
// compile, nothing spills, nothing is on the stack. No GPU.
// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <set>

#include "generator/program.hpp"
#include "runtime/compiler.hpp"
#include "tests/support/axis_formats.hpp"
#include "tests/support/registry.hpp"

namespace kvjit {
namespace {

using test::must;

constexpr int kSkipped = 77;  // ctest's SKIP_RETURN_CODE

TEST_CASE("quantise, dequantise, reference and rotate of every axis: no spills, no stack") {
  const auto nvrtc = open_nvrtc(Options::from_environment());
  if (!nvrtc) {
    std::printf("skipped: no NVRTC to compile with: %s\n", nvrtc.error().message.c_str());
    std::exit(kSkipped);
  }
  const Registry registry = must(Registry::load(embedded_files()));
  std::set<std::string> texts;
  for (const char* arch : {"sm_75", "sm_90a"})
    for (const test::AxisFormat& axis : test::axis_formats())
      for (const int head_dim : axis.head_dims)
        for (const Layout layout : {Layout::planar, Layout::rows}) {
          Problem problem;
          const std::string toml = fmt::format("title = \"of a test\"\n{}\n", axis.toml);
          problem.k = problem.v = must(parse_format(toml, fmt::format("{}.toml", axis.name), registry, head_dim));
          problem.head_dim = head_dim;
          problem.q_heads_per_kv = problem.query_length = 1;
          problem.layout = layout;
          problem.arch = *must(registry.require_arch(arch, {}));
          const ProgramSource program = must(make_reference_program(problem, registry));
          for (const auto& [role, source] : program.kernels) {
            if (!texts.insert(source.text).second) continue;
            const auto artefact = must((*nvrtc)->compile(source));
            const int spilled = artefact.stack_bytes + artefact.spill_store_bytes + artefact.spill_load_bytes;
            CHECK_MESSAGE(spilled == 0, source.name, ": stack ", artefact.stack_bytes, ", spills ",
                          artefact.spill_store_bytes, " + ", artefact.spill_load_bytes, " bytes, ", artefact.registers,
                          " registers");
          }
        }
  std::printf("compiled %zu kernels\n", texts.size());
}

}  // namespace
}  // namespace kvjit
