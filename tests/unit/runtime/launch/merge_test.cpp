// runtime/launch: the calls whose KV splits are merged by a launch of `merge`, not by decode.
// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include "tests/unit/runtime/launch/program_fixture.hpp"

using namespace kvjit;
using namespace kvjit::test;

TEST_CASE("fused, with several merge steps a warp: splits are left to a launch where the steps would take longer") {
  ProgramSource source = make_source(true, true);
  source.rotates_queries = source.fuses_merge = source.rotates_output = true;
  source.merge_steps = 4;
  source.kernels.at(Role::merge).row_threads = 4 * 128;  // `merge` has four blocks for each row
  ProgramFixture f(source);
  CHECK(f.context->got == std::vector<std::string>{"decode", "merge"});
  const auto is_left = [&](int tokens, int sequences, int blocks) {
    f.call.tokens = tokens, f.call.sequences = sequences, f.call.blocks = blocks;
    f.launches.clear();
    const std::vector<std::string> kernels = f.attend().kernels;
    const auto attend = f.launches[0].as<kv::AttentionArgs>();
    const bool is_apart = kernels == std::vector<std::string>{"decode", "merge"};
    CHECK((is_apart || kernels == std::vector<std::string>{"decode"}));
    CHECK(address(attend.split_counters) == (is_apart ? 0 : 64 * kBase));
    CHECK(attend.out.data == f.call.out.data);
    if (is_apart) {
      CHECK(f.launches[1].grid.x == 8 * 4);
      CHECK(f.launches[1].grid.y == 2);
      CHECK(f.launches[1].grid.z == unsigned(sequences));
      CHECK(f.launches[1].as<kv::MergeArgs>().out.data == f.call.out.data);
    }
    return is_apart;
  };
  CHECK(is_left(131072, 1, 0));         // 66 splits: five times four merge steps
  CHECK_FALSE(is_left(131072, 1, 2));   // whole batch-heads
  CHECK_FALSE(is_left(64, 1, 0));       // one tile a batch-head
  CHECK_FALSE(is_left(131072, 64, 0));  // 128 batch-heads, 128 blocks
  CHECK(is_left(131072, 40, 0));        // 80 batch-heads in up to three splits, 640 blocks of merge
  CHECK_FALSE(is_left(131072, 60, 0));  // 960 blocks of merge
  source.merge_steps = 1;
  ProgramFixture one(source);
  CHECK(one.context->got == std::vector<std::string>{"decode"});
  one.call.tokens = 131072, one.call.sequences = 1;
  CHECK(one.attend().kernels == std::vector<std::string>{"decode"});
}

TEST_CASE("merged contexts: what is written overlaps neither itself, nor what is read, nor the other output") {
  ProgramSource source = make_source(false, false);
  source.features.lse = true;
  Source kernel;
  kernel.name = kernel.entry = "merge_contexts";
  kernel.threads = 128, kernel.args_bytes = sizeof(kv::MergeContextsArgs);
  source.kernels[Role::merge_contexts] = kernel;
  ProgramFixture f(source);
  kv::MergeContextsArgs good{};
  good.count = 2, good.sequences = 3, good.queries = 2, good.heads = 8;
  for (int i = 0; i < 2; ++i)
    good.contexts[i] = {{pointer<void>((1 + 2 * i) * kBase), 2048, 1024, 128}, pointer<float>((2 + 2 * i) * kBase)};
  good.out = {pointer<void>(5 * kBase), 2048, 1024, 128};
  good.lse = pointer<float>(6 * kBase);
  REQUIRE(f.program->merge(good, nullptr));
  const auto refused = [&](const auto& corrupt, const std::string& message) {
    kv::MergeContextsArgs changed = good;
    corrupt(changed);
    const auto ran = f.program->merge(changed, nullptr);
    REQUIRE_FALSE(ran);
    CHECK(ran.error().code == Code::bad_input);
    CHECK_MESSAGE(ran.error().message.find(message) != std::string::npos, ran.error().message);
  };
  refused([](auto& m) { m.out = m.contexts[1].out; }, "out overlaps contexts[1].out; what a call writes");
  refused([](auto& m) { m.out.data = pointer<void>(2 * kBase + 188); }, "out overlaps contexts[0].lse");
  refused([](auto& m) { m.lse = static_cast<float*>(m.contexts[0].out.data); }, "lse overlaps contexts[0].out");
  refused([](auto& m) { m.lse = pointer<float>(4 * kBase + 188); }, "lse overlaps contexts[1].lse");
  refused([](auto& m) { m.lse = static_cast<float*>(m.out.data); }, "lse overlaps out");
  refused([](auto& m) { m.out.head_stride = 64; }, "out: rows of 128 elements overlap");
  refused([](auto& m) { m.contexts[1].out.sequence_stride = 1LL << 61; }, "contexts[1].out: strides");
  good.lse = nullptr;
  good.contexts[0].out.sequence_stride = 0;  // what is read may overlap
  CHECK(f.program->merge(good, nullptr));
}
