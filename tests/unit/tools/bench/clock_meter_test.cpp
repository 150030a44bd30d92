// tools/bench/clock_meter.cpp: the clock that its kernel counts, and its launch.
// SPDX-License-Identifier: MIT
#include "tools/bench/clock_meter.hpp"

#include <doctest/doctest.h>

#include "args/clock.cuh"
#include "tests/support/open_context.hpp"
#include "tests/support/recording_device.hpp"

namespace kvjit {
namespace {

TEST_CASE("the clock of the CPU back-end is 2 GHz") {
  const auto context = test::open_context(DeviceKind::cpu);
  const Registry registry = Registry::load(embedded_files()).value();
  CHECK(ClockMeter::make(context, registry).value().measure().value() == doctest::Approx(2000));
}

TEST_CASE("one block counts for 200 us; a timer that stands is an error") {
  const auto context = std::make_shared<test::RecordingContext>();
  context->device->device.arch = "sm_90a";
  const Registry registry = Registry::load(embedded_files()).value();
  const auto measured = ClockMeter::make(context, registry).value().measure();
  REQUIRE_FALSE(measured);
  CHECK(measured.error().message.find("timer") != std::string::npos);
  const auto& launches = context->device->launches;
  REQUIRE(launches.size() == 1);
  CHECK(launches[0].grid.x == 1);
  const auto args = launches[0].as<kv::ClockArgs>();
  CHECK(args.duration == 200'000);
  CHECK(args.nanoseconds == args.cycles + 1);
}

}  // namespace
}  // namespace kvjit
