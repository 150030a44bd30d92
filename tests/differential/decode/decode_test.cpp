// One decode call, scheduled in many ways on the CPU back-end. The answer must not depend on the number of
// blocks, on the order in which they end, on what is fused, or on earlier contents of the workspace.
// SPDX-License-Identifier: MIT
#include <algorithm>

#include "tests/differential/caller.hpp"
#include "tests/differential/harness.hpp"

namespace kvjit::test {
namespace {

constexpr unsigned kCompileThreads = 2;

Planned planned_for(const std::shared_ptr<Context>& context, const Case& test, bool is_fused = true) {
  std::string toml = test.toml();
  const std::string table = "[attention]\n";
  if (!is_fused) toml.insert(toml.find(table) + table.size(), "fuse = false\n");
  Problem problem =
      must(resolve(must(parse_specs(toml, test.name())).at(0), registry(), context->backend()->info().arch));
  ProgramSource source = must(make_program(problem, registry()));
  return {test, std::move(problem), std::move(source)};
}

const Case kPlanar{"kv4", "tbq4_0", 128, 4, 2, Layout::planar, true}, kRows{"tbq3_0", "q8_0", 128, 4, 1, Layout::rows};

// Tokens: none, less than a tile, whole tiles, whole tiles and one more.
const std::vector<int> kLengths = {257, 0, 40, 1, 128};
constexpr int kSequences = 5;

TEST_CASE("any number of blocks over ragged lengths, the same bits each time") {
  const auto context = open_context(DeviceKind::cpu), shuffled = open_context(DeviceKind::cpu, 7);
  for (const Case& test : {kPlanar, kRows}) {
    const Planned one = planned_for(context, test);
    warm_up(context, {one}, kCompileThreads);
    Judge judge(context, one, kSequences), again(shuffled, one, kSequences);
    // Block counts: some exceed the tiles of the shortest sequence; kMostBlocks exceeds all tiles, because the host
    // assumes the longest length for every sequence.
    for (const int blocks : {1, 2, 3, 5, 7, 29, kMostBlocks}) {
      CAPTURE(blocks);
      const KernelHarness::Call call{0, kLengths, blocks, false};
      const auto out = judge.check(call);
      CHECK(must(judge.attend(call)).out == out);
      CHECK(must(again.attend(call)).out == out);
      const auto row = out.size() / kSequences;  // the sequence without tokens must give zeros
      CHECK(std::all_of(out.begin() + std::ptrdiff_t(row), out.begin() + std::ptrdiff_t(2 * row),
                        [](float x) { return x == 0; }));
    }
  }
}

// kSplitsAtOnce is 16: with more KV splits, groups of splits merge first. One tile a split makes 66 splits.
TEST_CASE("more splits of a batch-head than merge at once") {
  const auto context = open_context(DeviceKind::cpu), shuffled = open_context(DeviceKind::cpu, 7);
  constexpr int kTokens = 2100;
  for (const Case& test : {kPlanar, kRows}) {
    const Planned one = planned_for(context, test);
    warm_up(context, {one}, kCompileThreads);
    Judge judge(context, one, 1, kTokens), again(shuffled, one, 1, kTokens);
    for (const int blocks : {70, kMostBlocks}) {
      const KernelHarness::Call call{0, {kTokens}, blocks, false};
      CHECK(must(again.attend(call)).out == judge.check(call));
    }
  }
}

// More than 16 x 16 splits: groups of groups merge.
TEST_CASE("more splits of a batch-head than merge in two rounds") {
  const auto context = open_context(DeviceKind::cpu);
  const Planned one = planned_for(context, kRows);
  const int most = 300;
  Caller caller(context, one, {1, 1, most * one.source.tile_tokens});
  for (const int blocks : {300, 256, 257, 17, 16}) {
    const int tiles =
        blocks > 17 ? blocks : most;  // no block may have one tile while others have two, so few blocks get 300 tiles
    const Caller::Shape shape{1, tiles * one.source.tile_tokens, blocks, {}};
    CHECK(must(caller.run(shape)).blocks == blocks);
    CHECK(caller.error(shape) <= kMaxKernelError);
    CHECK(caller.counters_are_zero());
  }
}

TEST_CASE("the order in which blocks finish does not change a bit") {
  const auto context = open_context(DeviceKind::cpu);
  Planned forwards = planned_for(context, kPlanar), backwards = forwards;
  // The back-end runs blocks from the first to the last, so the mirrored kernel runs them from the last to the first.
  std::string text = backwards.source.kernels.at(Role::decode).text.str();
  const std::string block = "block_x()", mirrored = "(args.scheduler.blocks - 1 - block_x())";
  int replaced = 0;
  for (std::size_t at = text.find("class TileScheduler"); (at = text.find(block, at)) != std::string::npos; ++replaced)
    text.replace(at, block.size(), mirrored), at += mirrored.size();
  REQUIRE(replaced >= 3);
  backwards.source.kernels.at(Role::decode).text = text;
  Judge judge(context, forwards, kSequences), mirror(context, backwards, kSequences);
  for (const int blocks : {2, 3, 7, 13}) {
    const KernelHarness::Call call{0, kLengths, blocks, false};
    CHECK(mirror.check(call) == must(judge.attend(call)).out);
  }
  constexpr int kTokens = 2100;
  Judge many(context, forwards, 1, kTokens), many_mirrored(context, backwards, 1, kTokens);
  for (const int blocks :
       {33, kMostBlocks}) {  // of 33 blocks, the 17th has the last split of one head and the first of the other
    const KernelHarness::Call call{0, {kTokens}, blocks, false};
    CHECK(many_mirrored.check(call) == must(many.attend(call)).out);
  }
}

// Returns which kernels ran, by the first words of their names: "rotate.forward", "decode" ...
std::vector<std::string> kernels(const KernelHarness::Outcome& outcome) {
  std::vector<std::string> names;
  for (const std::string& name : outcome.report.kernels) {
    const std::size_t first = name.find('.');
    names.push_back(name.substr(0, name.rfind("rotate.", 0) == 0 ? name.find('.', first + 1) : first));
  }
  return names;
}

TEST_CASE("apart or fused: the same numbers, and the report says which") {
  struct Example {
    Case test;
    std::vector<std::string> fused, apart;
  };
  const std::vector<std::string> one = {"decode"}, apart = {"rotate.forward", "decode", "merge", "rotate.inverse"};
  const std::vector<Example> examples = {
      {kPlanar, one, apart},
      {{"q4_0", "q8_0", 128, 4, 1, Layout::rows}, one, {"decode", "merge"}},
      {{"tbq3_0", "q8_0", 128, 4, 1, Layout::planar}, one, {"rotate.forward", "decode", "merge"}},
      // A residual's signs are a second half of the row.
      {{"amesianx_tbqp3_1", "amesianx_tbqp3_1", 128, 4, 1, Layout::planar}, one, apart},
      // A dense rotation is a launch of its own either way.
      {{"tbq4_dense_qsfirst_raw", "tbq4_dense_qsfirst_raw", 128, 4, 1, Layout::planar},
       {"rotate.forward", "decode", "rotate.inverse"},
       apart},
  };
  const auto context = open_context(DeviceKind::cpu);
  std::vector<Planned> all;
  for (const Example& example : examples)
    for (const bool is_fused : {true, false}) all.push_back(planned_for(context, example.test, is_fused));
  warm_up(context, all, kCompileThreads);
  for (std::size_t i = 0; i < examples.size(); ++i) {
    INFO(examples[i].test.name());
    Judge fused(context, all[2 * i], kSequences), parts(context, all[2 * i + 1], kSequences);
    for (const int blocks : {1, 7}) {
      const KernelHarness::Call call{0, kLengths, blocks, false};
      const auto mine = must(fused.attend(call)), other = must(parts.attend(call));
      CHECK(kernels(mine) == examples[i].fused);
      CHECK(kernels(other) == examples[i].apart);
      CHECK(relative_error(mine.out, other.out) <= 1e-5);
      parts.check(call);
    }
  }
}

constexpr CacheShape kCapacity{3, kKvHeads, 300};

TEST_CASE("one workspace for calls of any shape, one after the other: counters are left zero") {
  const auto context = open_context(DeviceKind::cpu);
  Caller caller(context, planned_for(context, kRows), kCapacity);
  for (const Caller::Shape& shape : std::vector<Caller::Shape>{{3, 300, 5, {300, 0, 70}},
                                                               {1, 300, 7, {}},
                                                               {3, 33, 0, {}},
                                                               {2, 300, kMostBlocks, {1, 299}},
                                                               {1, 5, 3, {}},
                                                               {3, 300, 5, {300, 0, 70}}}) {
    INFO(shape.sequences, " sequences, ", shape.tokens, " tokens, ", shape.blocks, " blocks");
    must(caller.run(shape));
    CHECK(caller.error(shape) <= kMaxKernelError);
    CHECK(caller.counters_are_zero());
  }
}

// The kernel refuses a stale counter that is at least the number of splits of a batch-head. No kernel can detect a
// smaller stale value, because it could be the count of splits that have ended.
TEST_CASE("counters that were not set to zero are refused by the kernel") {
  const auto context = open_context(DeviceKind::cpu);
  Caller caller(context, planned_for(context, kRows), kCapacity);
  const Caller::Shape shape{1, 300, 3, {}};  // two batch-heads, two splits each
  for (const kv::u32 stale : {2u, 3u, 0xffffffffu, 0x3f800000u}) {
    caller.set_counters(stale);
    const auto report = caller.run(shape);
    REQUIRE_FALSE_MESSAGE(report, "counters of ", stale);
    CHECK(report.error().code == Code::internal);
    CHECK(report.error().message.find("what the kernel requires of its caller does not hold") != std::string::npos);
  }
  caller.set_counters(0);  // the same workspace with correct counters
  must(caller.run(shape));
  CHECK(caller.error(shape) <= kMaxKernelError);
}

}  // namespace
}  // namespace kvjit::test
