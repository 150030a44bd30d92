// A scale for each KV head, in every kernel family: the heads of a Judge have different ones.
// SPDX-License-Identifier: MIT
#include "tests/differential/harness.hpp"
#include "tests/support/registry.hpp"

namespace kvjit::test {
namespace {

constexpr const char* kName = "vllm_fp8_per_head";

Case case_of(const char* k, const char* v, int gqa, int queries, Layout layout, Layout page_layout = Layout::rows) {
  Case test{k, v, 128, gqa, queries, layout, queries > 1};
  if (layout == Layout::paged) test.page_tokens = 16, test.page_layout = page_layout;
  return test;
}

TEST_CASE("decode and reference multiply by the scales of heads, on either side and in teams of warps") {
  const auto context = open_context(DeviceKind::cpu);
  for (const Case& test :
       {case_of(kName, kName, 4, 1, Layout::rows), case_of(kName, "kv4", 16, 2, Layout::planar),
        case_of("q8_0", kName, 4, 4, Layout::paged), case_of(kName, kName, 8, 1, Layout::paged, Layout::planar)}) {
    const Planned one = planned(registry(), test, context->backend()->info().arch);
    CHECK(one.source.kernels.at(Role::decode).text.str().find("decode<kv::HeadScaled<kv::Plan") != std::string::npos);
    Judge judge(context, one, 2);
    judge.check({257, {}, 0, false});
    judge.check({0, {257, 15}, 3, false});
    judge.check({33, {}, 0, true});
  }
}

TEST_CASE("prefill multiplies by the scales of heads, in one pass and in two") {
  const auto context = open_context(DeviceKind::cpu);
  for (const Case& test : {case_of(kName, kName, 4, 48, Layout::planar), case_of("kv4", kName, 4, 48, Layout::paged)}) {
    Judge judge(context, planned(registry(), test, "sm_90a"));
    for (const ManyRows many_rows : {ManyRows::prefill, ManyRows::two_pass}) {
      KernelHarness::Call call{257, {}, 0, false};
      call.many_rows = many_rows;
      judge.check(call);
    }
  }
}

TEST_CASE("run-time query lengths with the scales of heads") {
  const auto context = open_context(DeviceKind::cpu);
  Case test = case_of(kName, kName, 4, 40, Layout::paged);
  test.is_varlen = true;
  Judge judge(context, planned(registry(), test, context->backend()->info().arch), 3);
  KernelHarness::Call call{0, {257, 40, 15}, 0, false};
  call.query_counts = {1, 40, 7};
  judge.check(call);
}

TEST_CASE("what has no place for the scales of heads is refused") {
  Case heads = case_of(kName, kName, 4, 1, Layout::rows);
  heads.token_heads = 8;
  const Problem problem = must(resolve(must(parse_specs(heads.toml(), heads.name())).at(0), registry(), "sm_90a"));
  const auto refused = make_program(problem, registry());
  REQUIRE_FALSE(refused.has_value());
  CHECK(refused.error().message.find("a scale for each head (vllm_fp8_per_head)") != std::string::npos);
}

}  // namespace
}  // namespace kvjit::test
