// runtime/launch/prefill.cpp: which calls prefill takes, its blocks, and the kernels of a call.
// SPDX-License-Identifier: MIT
#include "runtime/launch/prefill.hpp"

#include "tests/unit/runtime/launch/program_fixture.hpp"

namespace kvjit::test {
namespace {

// 1,000 query rows of a KV head: four work tiles.
ProgramSource many_rows(bool k_rotated = false, bool v_rotated = false) {
  ProgramSource source = make_source(k_rotated, v_rotated);
  source.query_length = 250;
  source.prefill_rows = 256;
  Source& prefill = source.kernels[Role::prefill] = source.kernels.at(Role::decode);
  prefill.name = prefill.entry = "prefill";
  prefill.threads = 384;
  return source;
}

AttentionCall call_of(int sequences, int kv_heads) {
  AttentionCall call;
  call.sequences = sequences, call.kv_heads = kv_heads, call.tokens = 1000;
  return call;
}

bool takes(const AttentionCall& call, const DeviceInfo& device = {true, "fake", "sm_90a", 132, 0, 0}) {
  const auto taken = takes_prefill(many_rows(), device, call);
  REQUIRE(taken);
  return *taken;
}

TEST_CASE("prefill takes calls whose work tiles keep half of the multiprocessors busy") {
  CHECK_FALSE(takes(call_of(1, 16)));  // 64 of 132
  CHECK(takes(call_of(1, 17)));        // 68
  CHECK(takes(call_of(17, 1)));
  CHECK_FALSE(takes(call_of(1, 64), {false, "cpu", "sm_90a", 1, 0, 0}));  // the CPU back-end has no speed to choose for
}

TEST_CASE("a call may ask for either kernel") {
  AttentionCall call = call_of(1, 64);
  call.many_rows = ManyRows::decode;
  CHECK_FALSE(takes(call));
  call = call_of(1, 1);
  call.many_rows = ManyRows::prefill;
  CHECK(takes(call));
  const auto refused = takes_prefill(make_source(false, false), {true, "fake", "sm_90a", 132, 0, 0}, call);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == Code::unsupported);
}

TEST_CASE("blocks of prefill: one for each multiprocessor, at most one a work tile, at most what the call allows") {
  const DeviceInfo device{true, "fake", "sm_90a", 132, 0, 0};
  const auto blocks = [&](AttentionCall call, int most = 0) {
    call.blocks = most;
    return prefill_schedule(many_rows(), device, call).blocks;
  };
  CHECK(blocks(call_of(1, 64)) == 132);
  CHECK(blocks(call_of(1, 20)) == 80);
  CHECK(blocks(call_of(1, 64), 7) == 7);
}

TEST_CASE("a call by prefill launches no decode and no merge; rotations outside of it stay") {
  ProgramFixture fixture(many_rows(true, true));
  fixture.call.many_rows = ManyRows::prefill;
  fixture.call.q = {pointer<void>(20 * kBase), 250 * 1024, 1024, 128};
  fixture.call.out = {pointer<void>(30 * kBase), 250 * 1024, 1024, 128};
  const LaunchReport report = fixture.attend();
  CHECK(report.kernels == std::vector<std::string>{"rotate_q", "prefill", "rotate_out"});
  CHECK(report.blocks == 24);
  REQUIRE(fixture.launches.size() == 3);
  CHECK(fixture.launches[1].grid.x == 24);
  const auto args = fixture.launches[1].as<kv::AttentionArgs>();
  CHECK(args.scheduler.kv_heads == 2);  // of the cache: prefill has no query chunks
  CHECK(args.scheduler.blocks == 24);
}

}  // namespace
}  // namespace kvjit::test
