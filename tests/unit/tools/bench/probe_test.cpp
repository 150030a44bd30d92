// tools/bench/probe.cpp: the launches that the probe tries and the bytes that each reads. The fastest launch is the
// result.
// SPDX-License-Identifier: MIT
#include "tools/bench/probe.hpp"

#include <doctest/doctest.h>

#include <set>

#include "args/attention.cuh"
#include "tests/support/recording_device.hpp"

namespace kvjit {
namespace {

TEST_CASE("the probe reads the bytes of every place in turn, and its fastest launch counts") {
  const auto context = std::make_shared<test::RecordingContext>();
  context->device->device.arch = "sm_90a";
  context->device->device.multiprocessors = 132;
  context->device->medians = {5, 3, 2, 4};
  const Registry registry = Registry::load(embedded_files()).value();
  const Probe probe = Probe::make(context, registry).value();
  const ProbeTiming best = probe.time({0x1000, 0x9000, 0x5000}, 1000, 7).value();
  CHECK(best.timing.median_us == 2);
  CHECK(best.timing.repeats == 7);
  CHECK(best.unroll == 4);
  CHECK(best.blocks_per_multiprocessor == 2);

  const auto& launches = context->device->launches;
  REQUIRE(launches.size() == 4 * 3);
  std::set<unsigned> grids;
  for (std::size_t i = 0; i < launches.size(); ++i) {
    const auto args = launches[i].as<kv::ProbeArgs>();
    const DevicePointer places[] = {0x1000, 0x9000, 0x5000};
    CHECK(reinterpret_cast<DevicePointer>(args.from) == places[i % 3]);
    CHECK(args.vectors == 62);  // whole vectors only
    CHECK(args.step == 512 * static_cast<long long>(launches[i].grid.x));
    CHECK(args.found != nullptr);
    grids.insert(launches[i].grid.x);
  }
  CHECK(grids == std::set<unsigned>{2 * 132, 4 * 132});
}

}  // namespace
}  // namespace kvjit
