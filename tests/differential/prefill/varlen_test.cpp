// prefill with run-time query lengths (query_length = "any"), on the CPU back-end against the oracle.
// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <numeric>
#include <vector>

#include "tests/differential/prefill/rows.hpp"

namespace kvjit::test {
namespace {

Case any_case(const std::string& k, const std::string& v, Layout layout, int head_dim = 128, int gqa = 3) {
  Case test{k, v, head_dim, gqa, 300, layout, true};
  test.is_varlen = true;
  return test;
}

Planned planned_any(const Case& test) {
  Planned one = planned(registry(), test, "sm_90a");
  REQUIRE_MESSAGE(one.source.prefill_rows > 0, test.name());
  return one;
}

KernelHarness::Call ragged(std::vector<int> counts, std::vector<int> lengths, int blocks = 0) {
  KernelHarness::Call call = prefill_call(lengths, blocks);
  call.query_counts = std::move(counts);
  return call;
}

TEST_CASE("any number of queries, and ragged batches of them") {
  const auto context = open_context(DeviceKind::cpu);
  Case paged = any_case("q8_0", "kv4", Layout::paged);
  paged.page_tokens = 16;
  for (const Case& test :
       {any_case("kv4", "tbq4_0", Layout::planar), any_case("f16", "f16", Layout::planar), paged,
        any_case("q5_1", "q4_0", Layout::rows, 64, 5), any_case("kv4", "kv4", Layout::rows, 256, 1)}) {
    const Planned one = planned_any(test);
    Judge judge(context, one, 4, 700);
    for (const int queries : {1, 86, 300}) {
      KernelHarness::Call call = prefill_call({700, 300, 0, 129}, 0);
      call.queries = queries;
      judge.check(call);
    }
    for (const int blocks : {0, 1, 3}) judge.check(ragged({70, 0, 300, 5}, {700, 300, 400, 129}, blocks));
  }
}

TEST_CASE("calls of a ragged batch, one behind the other, give the same bits, because they set the tickets back") {
  const auto context = open_context(DeviceKind::cpu);
  const Planned one = planned_any(any_case("f16", "q8_0", Layout::planar));
  Planned broken = one;
  Text& kernel = broken.source.buckets.back().kernels.at(Role::prefill).text;
  std::string text = kernel.str();
  const std::string last = "int(ticket) == size_ - 1";
  REQUIRE(text.find(last) != std::string::npos);
  kernel = text.replace(text.find(last), last.size(), "int(ticket) == size_");
  for (const Planned* each : {&one, static_cast<const Planned*>(&broken)}) {
    Judge judge(context, *each, 3, 400);
    CHECK((judge.differing(ragged({300, 70, 5}, {400, 300, 129}, 2), 4) == 0) == (each == &one));
  }
}

TEST_CASE("the reference kernel serves a call that asks for prefill") {
  Judge judge(open_context(DeviceKind::cpu), planned_any(any_case("kv4", "q8_0", Layout::planar)), 2, 200);
  KernelHarness::Call call = ragged({20, 3}, {200, 150});
  call.is_reference = true;
  CHECK(must(judge.attend(call)).report.kernels.back().rfind("reference.", 0) == 0);
  CHECK_FALSE(judge.is_wrong(call));
}

TEST_CASE("a batch of more sequences than a warp has lanes") {
  const auto context = open_context(DeviceKind::cpu);
  Judge judge(context, planned_any(any_case("f16", "f16", Layout::planar, 64, 1)), 70, 130);
  std::vector<int> counts, lengths;
  for (int s = 0; s < 70; ++s) counts.push_back(s * 7 % 5), lengths.push_back(s * 13 % 131);
  judge.check(ragged(counts, lengths));
}

TEST_CASE("a sequence has the same bits in any ragged batch, and alone") {
  const auto context = open_context(DeviceKind::cpu);
  const Planned one = planned_any(any_case("kv3", "kv4", Layout::rows));
  Judge judge(context, one, 3, 900);
  const std::size_t values = std::size_t(kKvHeads) * 3 * 100 * 128;  // of 100 queries
  const auto first_sequence = [&](std::vector<float> out) {
    out.resize(values);
    return out;
  };
  const auto alone = first_sequence(judge.check(ragged({100, 0, 0}, {900, 0, 0})));
  for (const int blocks : {0, 1, 3}) {
    CHECK(first_sequence(judge.check(ragged({100, 300, 7}, {900, 500, 257}, blocks))) == alone);
    CHECK(first_sequence(judge.check(ragged({100, 1, 200}, {900, 1, 900}, blocks))) == alone);
  }
  KernelHarness::Call uniform = prefill_call({900, 500, 257}, 0);
  uniform.queries = 100;
  CHECK(first_sequence(judge.check(uniform)) == alone);
}

}  // namespace
}  // namespace kvjit::test
