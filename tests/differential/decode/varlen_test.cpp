// decode with run-time query lengths (query_length = "any"), on the CPU back-end against the oracle: each number of
// queries takes its bucket, and sequences of a ragged batch take their own.
// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tests/differential/harness.hpp"

namespace kvjit::test {
namespace {

// 4 query heads a KV head: buckets for 1, 2, 4, 8, 16 and 40 queries. The last has chunks of 64 rows.
Case any_case(const std::string& k, const std::string& v, Layout layout, int head_dim = 128) {
  Case test{k, v, head_dim, 4, 40, layout, true};
  test.is_varlen = true;
  return test;
}

// The query lengths in the names of the kernels that attended: "q1-2", "q1-16" ...
std::vector<std::string> buckets(const LaunchReport& report) {
  std::vector<std::string> found;
  for (const std::string& name : report.kernels)
    if (name.starts_with("decode."))
      for (const char* bucket : {"q1-1", "q1-2", "q1-4", "q1-8", "q1-16", "q1-40"})
        if (name.find("." + std::string(bucket) + ".") != std::string::npos) found.push_back(bucket);
  return found;
}

TEST_CASE("each number of queries takes its bucket") {
  const auto context = open_context(DeviceKind::cpu);
  const Planned one = planned(registry(), any_case("kv4", "q8_0", Layout::planar), "sm_80");
  Judge judge(context, one, 2);
  for (const auto& [queries, bucket] :
       {std::pair{1, "q1-1"}, {2, "q1-2"}, {3, "q1-4"}, {8, "q1-8"}, {11, "q1-16"}, {17, "q1-40"}, {40, "q1-40"}}) {
    KernelHarness::Call call{257, {}, 0, false};
    call.queries = queries;
    judge.check(call);
    CHECK(buckets(must(judge.attend(call)).report) == std::vector<std::string>{bucket});
    call.lengths = {200, 257};
    judge.check(call);
    call.is_reference = true;
    judge.check(call);
  }
}

TEST_CASE("sequences of a ragged batch take their own buckets, and those without queries none") {
  const auto context = open_context(DeviceKind::cpu);
  Case paged = any_case("q8_0", "kv4", Layout::paged);
  paged.page_tokens = 16;
  for (const Case& test : {any_case("kv4", "kv4", Layout::planar), any_case("f16", "tbq4_0", Layout::rows), paged,
                           any_case("turbo3_0", "q5_1", Layout::rows, 64),
                           any_case("tbq4_dense_qsfirst_raw", "tbq4_dense_qsfirst_raw", Layout::planar)}) {
    const Planned one = planned(registry(), test, "sm_80");
    Judge judge(context, one, 6);
    KernelHarness::Call call{0, {257, 100, 40, 1, 33, 128}, 0, false};
    call.query_counts = {1, 0, 40, 3, 2, 13};
    judge.check(call);
    CHECK(buckets(must(judge.attend(call)).report) ==
          std::vector<std::string>{"q1-1", "q1-2", "q1-4", "q1-8", "q1-16", "q1-40"});
    for (const int blocks : {1, 5}) {
      call.blocks = blocks;
      judge.check(call);
    }
    call.blocks = 0, call.is_reference = true;
    judge.check(call);
    // Buckets above the largest number of queries are not launched.
    call.is_reference = false, call.query_counts = {1, 2, 1, 1, 0, 2};
    judge.check(call);
    CHECK(buckets(must(judge.attend(call)).report) == std::vector<std::string>{"q1-1", "q1-2"});
  }
}

TEST_CASE("the workspace of a call is for the kernels that it may take, not for the most queries of the program") {
  Case test = any_case("f16", "f16", Layout::planar);
  test.query_length = 65536;
  const auto program = must(Program::create(open_context(DeviceKind::cpu), planned(registry(), test, "sm_90a").source));
  AttentionCall call;
  call.sequences = call.kv_heads = 8, call.tokens = 131072;
  const auto megabytes = [&](int queries, bool is_ragged) {
    call.queries = queries, call.query_rows = queries;
    call.query_starts = is_ragged ? reinterpret_cast<const int*>(16) : nullptr;
    return double(program->workspace_bytes(call)) / 1e6;
  };
  CHECK(megabytes(1, false) < 2);
  CHECK(megabytes(1, true) < 2);
  CHECK(megabytes(100, false) < 60);
  CHECK(megabytes(4096, true) < 200);
  CHECK(megabytes(2, false) > megabytes(1, false));
}

TEST_CASE("checked programs refuse query starts that are out of range") {
  const auto context = open_context(DeviceKind::cpu);
  Case test = any_case("f16", "f16", Layout::planar);
  test.has_checks = true;
  Judge judge(context, planned(registry(), test, "sm_80"), 2, 60);
  KernelHarness::Call call{0, {60, 50}, 0, false};
  call.query_counts = {40, 3};
  judge.check(call);
  call.is_reference = true;
  judge.check(call);
  call.query_counts = {3, 1}, call.queries = 2;
  for (const bool is_reference : {false, true}) {
    call.is_reference = is_reference;
    const auto refused = judge.attend(call);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().message.find("query_starts[1] is 3; 0 to 2 are possible") == 0);
  }
}

TEST_CASE("programs with a fixed number of queries refuse other numbers and ragged batches, and all refuse too many") {
  const auto context = open_context(DeviceKind::cpu);
  const Planned fixed = planned(registry(), {"f16", "f16", 128, 4, 2, Layout::planar}, "sm_80"),
                any = planned(registry(), any_case("f16", "f16", Layout::planar), "sm_80");
  const auto refusal = [&](const Planned& one, int queries, std::vector<int> counts) {
    Judge judge(context, one);
    KernelHarness::Call call{20, {}, 0, false};
    call.queries = queries, call.query_counts = std::move(counts);
    const auto outcome = judge.attend(call);
    REQUIRE_FALSE(outcome);
    CHECK(outcome.error().code == Code::bad_input);
    return outcome.error().message;
  };
  CHECK(refusal(fixed, 1, {}).find("1 queries; program") == 0);
  CHECK(refusal(fixed, 0, {2}).find("query_starts is given to program") == 0);
  CHECK(refusal(any, 41, {}).find("41 queries of a sequence; program") == 0);
}

}  // namespace
}  // namespace kvjit::test
