// A few random specs on the CPU back-end. `kvjit verify --fuzz` runs any number of them.
// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <atomic>

#include "runtime/base/parallel.hpp"
#include "tests/support/open_context.hpp"
#include "tests/support/registry.hpp"
#include "tools/verify/fuzz_run.hpp"

namespace kvjit::test {
namespace {

constexpr unsigned kThreads = 2;
constexpr std::uint64_t kFirstSeed = 1;
constexpr std::size_t kSeeds = 16;

TEST_CASE("random specs have the answers of attention in double") {
  const auto context = open_context(DeviceKind::cpu);
  std::vector<FuzzCase> cases(kSeeds);
  std::vector<FuzzOutcome> outcomes(kSeeds);
  in_parallel(kSeeds, kThreads, [&](std::size_t i) {
    cases[i] = fuzz_case(kFirstSeed + i, registry(), {"sm_80", "sm_90a"}, InputClasses::all());
    outcomes[i] = run_fuzz(cases[i], registry(), context);
  });
  std::size_t passed = 0;
  for (std::size_t i = 0; i < kSeeds; ++i) {
    CHECK_MESSAGE(outcomes[i].verdict != FuzzVerdict::failed, cases[i].text(), outcomes[i].reason);
    // Only keys far above N(0, 1) need the wider limit.
    CHECK((!outcomes[i].is_by_rounding || cases[i].inputs.numbers[0] != Numbers::ordinary));
    passed += outcomes[i].verdict == FuzzVerdict::passed;
  }
  CHECK(passed >= 12);
}

}  // namespace
}  // namespace kvjit::test
