// A sample of ggml's FLASH_ATTN_EXT cases on the CPU back-end. The sample has few programs; each runs all cases that it
// serves.
// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "tests/support/open_context.hpp"
#include "tests/support/registry.hpp"
#include "tools/verify/ggml/run.hpp"
#include "tools/verify/ggml/sample.hpp"

namespace kvjit::test {
namespace {

constexpr unsigned kThreads = 2;
constexpr double kMostWork = 3e8;  // products; the back-end does about 1e8 a second

TEST_CASE("400 of ggml's cases, of every value of every axis, have ggml's answers") {
  const std::vector<GgmlCase> all = ggml_matrix(), sample = ggml_sample_of_programs(all, 400, kMostWork);
  CHECK(sample.size() >= 400);
  // Only long prompts over long contexts have these; each of them takes minutes here.
  const std::set<std::pair<std::string, std::string>> left_out = ggml_left_out(all, sample);
  for (const auto& [axis, value] : left_out) MESSAGE("left to GPUs: ", axis, " ", value);
  CHECK(left_out == std::set<std::pair<std::string, std::string>>{{"GQA", "6"}, {"batch", "512"}, {"tokens", "4096"}});

  const std::vector<GgmlOutcome> outcomes =
      run_ggml(sample, registry(), open_context(DeviceKind::cpu), {kThreads, true, {}});
  REQUIRE(outcomes.size() == sample.size());
  double worst = 0;
  std::set<std::string> programs;
  for (std::size_t i = 0; i < sample.size(); ++i) {
    CHECK_MESSAGE(outcomes[i].verdict == GgmlVerdict::passed, sample[i].name(), ": ", outcomes[i].reason);
    CHECK_MESSAGE(outcomes[i].error <= kMaxGgmlError, sample[i].name());
    worst = std::max(worst, outcomes[i].error);
    programs.insert(outcomes[i].program);
  }
  MESSAGE(sample.size(), " cases by ", programs.size(), " programs, worst NMSE ", worst);
}

// Mutation test: one word of a fragment is changed at a time.
struct Mutation {
  const char *file, *from, *to, *reason;  // reason: text that the report must contain
};
constexpr Mutation kMutations[] = {
    {"features/sinks.cuh", "* rescale_factor + exp2_fast(end.sink - row_max)",
     "* rescale_factor + 2.f * exp2_fast(end.sink - row_max)", "NMSE"},
    {"features/mask.cuh", "args.slopes[at.head] * kLog2E : kLog2E", "kLog2E : kLog2E", "NMSE"},
    {"kernels/decode/split_merge.cuh", "Plan::store(out.data, to + e * 32 + lane(), x[e])",
     "Plan::store(out.data, to + 1 + e * 32 + lane(), x[e])", "byte 0 past the end of the output"}};

TEST_CASE("a sink counted twice, a slope left out and a write past the output are noticed") {
  GgmlCase one;
  one.head_dim_k = one.head_dim_v = 64, one.kv_heads = 2, one.gqa = 2, one.tokens = 113, one.batch = 3;
  one.has_mask = one.has_sinks = true, one.max_bias = 8, one.k = one.v = "q8_0";
  const auto context = open_context(DeviceKind::cpu);
  CHECK(run_ggml({one}, registry(), context, {}).at(0).verdict == GgmlVerdict::passed);
  for (const Mutation& mutation : kMutations) {
    const Registry broken = changed_registry(mutation.file, mutation.from, mutation.to);
    const GgmlOutcome outcome = run_ggml({one}, broken, context, {}).at(0);
    CHECK_MESSAGE(outcome.verdict == GgmlVerdict::failed, mutation.to);
    CHECK_MESSAGE(outcome.reason.find(mutation.reason) != std::string::npos, mutation.to, ": ", outcome.reason);
  }
}

}  // namespace
}  // namespace kvjit::test
