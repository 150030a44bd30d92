// Head sizes that do not fill the lanes of a warp, and heads of K and V of different sizes, on the CPU back-end against
// the oracle.
// SPDX-License-Identifier: MIT
#include "tests/differential/harness.hpp"

namespace kvjit::test {
namespace {

constexpr unsigned kCompileThreads = 2;

void check_cases(const std::vector<Case>& cases) {
  const auto context = open_context(DeviceKind::cpu);
  std::vector<Planned> all;
  for (const Case& test : cases) all.push_back(planned(registry(), test, "sm_90a"));
  warm_up(context, all, kCompileThreads, true);
  for (const Planned& one : all) {
    INFO(one.test.name());
    Judge judge(context, one, 3);
    for (const bool is_reference : {false, true}) judge.check({0, {257, 0, 40}, 3, is_reference});
    check_codec_kernels(judge, one.test.name());
  }
}

TEST_CASE("heads that do not fill the lanes of a warp") {
  check_cases({{"f16", "f16", 40, 4, 2, Layout::planar, true},
               {"f16", "bf16", 72, 1, 1, Layout::rows},
               {"f32", "f16", 80, 4, 1, Layout::rows},
               {"bf16", "f32", 112, 4, 1, Layout::planar},
               {"f16", "f16", 72, 8, 4, Layout::rows, true},  // a team of warps
               {"fp8_e4m3", "f16", 80, 4, 1, Layout::rows}});
}

TEST_CASE("heads of K and V that differ") {
  check_cases({{"f16", "f16", 192, 4, 1, Layout::rows, false, 128},
               {"q8_0", "q4_0", 576, 4, 1, Layout::rows, false, 512},
               {"kv4", "tbq4_0", 256, 4, 2, Layout::planar, true, 128},
               {"q8_0", "f16", 64, 4, 1, Layout::planar, false, 72},
               {"f16", "q8_0", 40, 8, 4, Layout::planar, true, 96}});
}

}  // namespace
}  // namespace kvjit::test
