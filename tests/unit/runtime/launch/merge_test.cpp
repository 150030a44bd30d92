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
  Fixture f(source);
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
  Fixture one(source);
  CHECK(one.context->got == std::vector<std::string>{"decode"});
  one.call.tokens = 131072, one.call.sequences = 1;
  CHECK(one.attend().kernels == std::vector<std::string>{"decode"});
}
