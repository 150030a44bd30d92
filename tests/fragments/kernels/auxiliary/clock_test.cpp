// templates/kernels/auxiliary/clock.cuh: the cycles and the nanoseconds of the time that it was asked for.
// SPDX-License-Identifier: MIT
#include "kernels/auxiliary/clock.cuh"

#include <doctest/doctest.h>

#include "runtime/device/cpu/block_scheduler.hpp"

namespace kvjit {
namespace {

struct ClockPlan {};

TEST_CASE("clock counts cycles and nanoseconds until the time is over") {
  kv::i64 cycles = 0, nanoseconds = 0;
  const kv::ClockArgs args{&cycles, &nanoseconds, 50'000};
  REQUIRE(run_grid([&] { kv::clock<ClockPlan>(args); }, {1}, 32, 0));
  CHECK(nanoseconds == 50'000);
  CHECK(cycles == 100'000);  // the CPU back-end's clock is 2 GHz
}

}  // namespace
}  // namespace kvjit
