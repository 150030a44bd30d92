// Scales that are swizzled in pages, as vLLM's SM100 kernels lay out V's: decode, prefill, the codec, a copy, and what
// is refused. tests/differential/codec/published_test.cpp compares whole pages.
// SPDX-License-Identifier: MIT
#include "generator/kernels/operations/operations.hpp"
#include "tests/differential/arrays.hpp"
#include "tests/differential/harness.hpp"
#include "tests/support/registry.hpp"

namespace kvjit::test {
namespace {

Case case_of(const char* k, const char* v, int head_dim, int gqa, int queries) {
  Case test{k, v, head_dim, gqa, queries, Layout::paged, queries > 1};
  test.page_tokens = 16, test.has_swizzled_values = true;
  return test;
}

// Tiles with an end have tokens behind it in a piece of four.
TEST_CASE("decode of few and of many query rows, and prefill, with swizzled scales of V") {
  const auto context = open_context(DeviceKind::cpu);
  for (const Case& test :
       {case_of("vllm_nvfp4", "vllm_nvfp4", 128, 4, 1), case_of("kv4", "vllm_nvfp4_4over6", 128, 8, 8),
        case_of("q8_0", "vllm_nvfp4", 256, 8, 1), case_of("vllm_nvfp4", "vllm_nvfp4", 128, 4, 48)}) {
    const Planned one = planned(registry(), test, context->backend()->info().arch);
    CHECK(one.source.v.swizzles_scales);
    Judge judge(context, one, 2);
    judge.check({0, {257, 50}, 3, false});
    judge.check({67, {}, 0, true});
    KernelHarness::Call call{67, {}, 0, false};
    call.many_rows = ManyRows::prefill;
    if (one.source.prefill_rows > 0) judge.check(call);
    check_codec_kernels(judge, test.name());
  }
}

TEST_CASE("a copy keeps the bytes, from token order to swizzled scales and back") {
  const auto context = open_context(DeviceKind::cpu);
  Case plain = case_of("vllm_nvfp4", "vllm_nvfp4", 128, 1, 1);
  const Planned swizzled = planned(registry(), plain, context->backend()->info().arch);
  plain.has_swizzled_values = false;
  const Planned ordered = planned(registry(), plain, context->backend()->info().arch);
  const CodecPlan ends[] = {side_plan(ordered.problem, 1), side_plan(swizzled.problem, 1)};
  Judge judges[] = {Judge(context, ordered), Judge(context, swizzled)};
  const std::shared_ptr<Program> programs[] = {must(Program::create(context, ordered.source)),
                                               must(Program::create(context, swizzled.source))};
  const std::vector<std::uint8_t> want = judges[0].cache(1).rows;
  for (const auto& [from, to] : {std::pair{0, 1}, {1, 0}, {1, 1}}) {
    KernelHarness target = must(KernelHarness::make(context, programs[to], to ? swizzled.problem : ordered.problem,
                                                    judges[0].harness().shape()));
    Buffer tables[2];
    CopyCall call;
    call.from.side = call.to.side = 1;
    call.from.tokens.side = judges[from].harness().cache(1), call.to.tokens.side = target.cache(1);
    call.from.tokens.table = must(judges[from].harness().upload_table(1, {}, tables[0]));
    call.to.tokens.table = must(target.upload_table(1, {}, tables[1]));
    call.from.tokens.tensor_scale = call.to.tokens.tensor_scale = 1;
    call.tokens = 101, call.heads = judges[0].harness().shape().kv_heads;
    const CopyPlan plan = must(
        plan_copy(ends[from], ends[to], true, Program::alignment_of(call, *programs[from], *programs[to]), registry()));
    CHECK(plan.kind == CopyKind::bytes);
    must(programs[from]->copy(call, *programs[to], emit_copy(plan, registry()), nullptr));
    const auto got = must(target.rows(1));
    REQUIRE(got.size() == want.size());
    const std::size_t row = want.size() / std::size_t(call.heads) / std::size_t(target.shape().tokens);
    int wrong = 0;
    for (int head = 0; head < call.heads; ++head)
      for (std::size_t i = 0; i < 101 * row; ++i) {
        const std::size_t at = std::size_t(head) * std::size_t(target.shape().tokens) * row + i;
        wrong += got[at] != want[at];
      }
    CHECK(wrong == 0);
  }
}

TEST_CASE("what has no swizzled scales is refused") {
  const auto refusal = [](Case test) {
    const auto problem = resolve(must(parse_specs(test.toml(), test.name())).at(0), registry(), "sm_90a");
    REQUIRE_FALSE(problem.has_value());
    return problem.error().message;
  };
  CHECK(refusal(case_of("q8_0", "q4_0", 128, 4, 1)) ==
        "v.swizzle of 'q4_0', whose head is not one block with a multiple of four scales of one byte");
  Case rows = case_of("vllm_nvfp4", "vllm_nvfp4", 128, 4, 1);
  rows.page_layout = Layout::rows;
  CHECK(refusal(rows) == "v.swizzle without pages of planes of at least 16 tokens");
  rows.layout = Layout::planar, rows.page_tokens = 0;
  CHECK(refusal(rows) == "v.swizzle without pages of planes of at least 16 tokens");
}

}  // namespace
}  // namespace kvjit::test
