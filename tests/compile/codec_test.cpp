// Kernels of every axis of a format through NVRTC, for the newest kind of GPU that has a test machine, and for the
// oldest with every second axis and the two layouts in turn (KVJIT_FULL=1: all). Each must compile without spills and
// without a stack frame. Needs no GPU.
// SPDX-License-Identifier: MIT
#include <cstdlib>

#include "tests/compile/kernels.hpp"
#include "tests/support/axis_formats.hpp"

namespace kvjit::test {
namespace {

TEST_CASE("quantize, dequantize, reference and rotate of every axis: no spills, no stack") {
  Kernels kernels;
  const bool is_complete = std::getenv("KVJIT_FULL") != nullptr;
  std::size_t combinations = 0;
  for (const std::string arch : {"sm_75", "sm_90a"})
    for (const AxisFormat& axis : axis_formats())
      for (const int head_dim : axis.head_dims)
        for (const Layout layout : {Layout::planar, Layout::rows}) {
          const bool is_next = combinations % 8 == 0 || combinations % 8 == 5;
          ++combinations;
          if (arch == "sm_75" && !is_next && !is_complete) continue;
          Problem problem;
          const std::string toml = fmt::format("title = \"of a test\"\n{}\n", axis.toml);
          problem.k = problem.v = must(parse_format(toml, fmt::format("{}.toml", axis.name), registry(), head_dim));
          problem.head_dim = problem.head_dim_v = head_dim;
          problem.q_heads_per_kv = problem.query_length = 1;
          problem.layout = layout;
          problem.arch = *must(registry().require_arch(arch, {}));
          const ProgramSource program = must(make_reference_program(problem, registry()));
          for (const auto& [role, source] : program.kernels) kernels.add(source);
        }
  kernels.compile(2);
}

}  // namespace
}  // namespace kvjit::test
