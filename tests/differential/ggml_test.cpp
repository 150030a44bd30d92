// A sample of ggml's FLASH_ATTN_EXT cases executed on the CPU back-end: few programs, each with all cases that it serves.
// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "tests/support/registry.hpp"
#include "tools/ggml_run.hpp"
#include "tools/ggml_sample.hpp"

namespace kvjit::test {
namespace {

constexpr unsigned kThreads = 2;
constexpr double kMostWork = 3e8;  // products; the back-end takes about a second for 1e8

std::shared_ptr<Context> open_cpu_context() {
  Options options = Options::from_environment();
  options.device = DeviceKind::cpu;
  options.cache_dir = "off";
  return must(Context::open(options));
}

TEST_CASE("400 of ggml's cases, of every value of every axis, have ggml's answers") {
  const std::vector<GgmlCase> all = ggml_matrix(), sample = ggml_sample_of_programs(all, 400, kMostWork);
  CHECK(sample.size() >= 400);
  // Only long prompts over long contexts have these; all of them take minutes here.
  const std::set<std::pair<std::string, std::string>> left_out = ggml_left_out(all, sample);
  for (const auto& [axis, value] : left_out) MESSAGE("left to GPUs: ", axis, " ", value);
  CHECK(left_out == std::set<std::pair<std::string, std::string>>{{"GQA", "6"}, {"batch", "512"}, {"tokens", "4096"}});

  const std::vector<GgmlOutcome> outcomes = run_ggml(sample, registry(), open_cpu_context(), {kThreads, true, {}});
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

}  // namespace
}  // namespace kvjit::test
