// Calls whose KV splits a launch of `merge` merges, on the CPU back-end: with many query rows, with wide rows, and with
// various numbers of splits.
// SPDX-License-Identifier: MIT
#include "tests/differential/harness.hpp"

namespace kvjit::test {
namespace {

constexpr unsigned kCompileThreads = 2;

std::vector<std::string> families(const KernelHarness::Outcome& outcome) {
  std::vector<std::string> names;
  for (const std::string& name : outcome.report.kernels) names.push_back(name.substr(0, name.find('.')));
  return names;
}

TEST_CASE("many splits of many or wide rows: merged by a launch of its own, which rotates") {
  // `wide`: one KV head of a latent cache. `team`: a team of warps, whose output is rotated back from V's domain.
  // `chunks`: query chunks.
  const Case wide{"q8_0", "q4_0", 576, 16, 1, Layout::rows, false, 512},
      team{"kv4", "tbq4_0", 128, 16, 2, Layout::planar, true}, chunks{"f16", "kv3", 128, 16, 5, Layout::planar, true};
  const auto context = open_context(DeviceKind::cpu);
  std::vector<Planned> all;
  for (const Case& test : {wide, team, chunks})
    all.push_back(planned(registry(), test, context->backend()->info().arch));
  warm_up(context, all, kCompileThreads);
  for (const Planned& one : all) {
    INFO(one.test.name());
    constexpr int kSequences = 2, kTokens = 530;
    Planned within = one;
    within.source.merge_steps = 1;  // decode merges every split itself
    Judge judge(context, one, kSequences, kTokens), other(context, within, kSequences, kTokens);
    const int pairs = kSequences * kKvHeads * one.source.query_chunks;
    // One tile a split: 34 splits of a batch-head; ragged lengths give fewer or more.
    for (const auto& lengths : {std::vector<int>{}, std::vector<int>{kTokens, 0}, std::vector<int>{33, kTokens}}) {
      const KernelHarness::Call many{kTokens, lengths, kMostBlocks, false}, whole{kTokens, {}, pairs, false};
      const auto left = must(judge.attend(many)), merged = must(other.attend(many));
      CHECK(families(left) == std::vector<std::string>{"decode", "merge"});
      CHECK(families(merged) == std::vector<std::string>{"decode"});
      CHECK(families(must(judge.attend(whole))) == std::vector<std::string>{"decode"});
      CHECK(judge.check(many) == left.out);
      CHECK(relative_error(left.out, merged.out) <= 1e-6);
    }
  }
}

}  // namespace
}  // namespace kvjit::test
