// prefill on the CPU back-end against the oracle: formats, layouts, ragged lengths, any number of blocks.
// SPDX-License-Identifier: MIT
#include "runtime/launch/prefill.hpp"

#include <algorithm>
#include <cstdlib>
#include <map>

#include "generator/kernels/prefill/plan.hpp"
#include "tests/differential/caller.hpp"
#include "tests/differential/prefill/rows.hpp"
#include "tests/support/every_format.hpp"

namespace kvjit::test {
namespace {

Case paged(const char* k, const char* v, int page_tokens, Layout page_layout, int queries = 30) {
  return {k, v, 128, 3, queries, Layout::paged, true, 0, page_tokens, page_layout};
}

TEST_CASE("formats, layouts and ragged lengths: the oracle's answer in any number of blocks") {
  check_prefill({{"kv4", "kv4", 128, 4, 70, Layout::planar, true},  // two work tiles a head, the last one not full
                 {"f16", "f16", 128, 4, 33, Layout::planar, true},  // rows that are only copied
                 {"kv4", "kv4", 128, 3, 30, Layout::planar, true},  // 90 query rows: one block a consumer
                 {"f16", "f16", 128, 3, 30, Layout::planar, true},
                 {"f16", "f16", 128, 5, 14, Layout::rows, false},     // 70 query rows, all of which see all tokens
                 {"q8_0", "q4_0", 128, 4, 33, Layout::planar, true},  // scales of 32 values
                 {"tbq4_0", "kv2", 128, 4, 33, Layout::rows, true},   // unaligned rows
                 {"vllm_k4_nc", "q4_1", 128, 4, 33, Layout::planar, true},     // renormalised rows, minima
                 {"turbo_split_54", "kv5", 128, 4, 33, Layout::planar, true},  // a mask of outliers, a table
                 {"iq4_nl", "fp8_e5m2", 128, 3, 30, Layout::planar, false},
                 {"q8_0", "q8_0", 128, 4, 33, Layout::rows, true},    // tiles in two parts
                 {"bf16", "bf16", 128, 4, 33, Layout::planar, true},  // two parts
                 {"bf16", "bf16", 128, 4, 33, Layout::rows, true},    // four parts
                 {"f16", "q8_0", 128, 3, 30, Layout::planar, true},   // f16 rows that are not only copied
                 paged("f16", "f16", 16, Layout::planar),
                 paged("q8_0", "bf16", 8, Layout::rows),
                 paged("kv4", "tbq4_0", 16, Layout::planar),
                 paged("kv3", "q4_0", 64, Layout::planar),
                 paged("tbq4_0", "kv4", 8, Layout::rows),
                 paged("fp8_e4m3", "fp8_e4m3", 256, Layout::planar)},
                {300, 0, 5, 128, 129}, {0, 1, 3});
}

TEST_CASE("unaligned rows in pages an odd number of 16 bytes apart: the oracle's answer") {
  check_prefill({paged("vllm_octave_3", "tbq4_0", 8, Layout::rows)}, {300, 0, 5, 129}, {0, 3});
}

TEST_CASE("heads of 64 dimensions, and of 64 and 128: the oracle's answer in any number of blocks") {
  check_prefill({{"q8_0", "q4_0", 64, 4, 70, Layout::planar, true},
                 {"f16", "f16", 64, 3, 30, Layout::planar, true},
                 {"q4_1", "q5_0", 64, 3, 30, Layout::rows, true},
                 {"fp8_e4m3", "bf16", 64, 3, 30, Layout::planar, false},
                 {"q8_0", "f16", 64, 3, 30, Layout::paged, true, 0, 16, Layout::planar},
                 {"kv4", "q8_0", 128, 3, 30, Layout::planar, true, 64},
                 {"q4_0", "tbq4_0", 64, 3, 30, Layout::planar, true, 128}},
                {300, 0, 5, 128, 129}, {0, 3});
}

TEST_CASE("heads of 192 and 256 dimensions: the oracle's answer in any number of blocks") {
  check_prefill({{"kv4", "tbq4_0", 256, 4, 40, Layout::planar, true},  // two work tiles a head
                 {"f16", "f16", 256, 3, 30, Layout::planar, true},
                 {"q8_0", "q8_0", 256, 3, 30, Layout::rows, true},
                 {"bf16", "q4_1", 256, 3, 30, Layout::paged, false, 0, 16, Layout::planar},
                 {"q8_0", "kv3", 192, 3, 30, Layout::planar, true, 128},
                 {"f16", "f16", 192, 3, 30, Layout::planar, true, 128},  // rows of 24 chunks
                 {"q4_0", "tbq4_0", 64, 3, 30, Layout::planar, true, 256}},
                {300, 0, 5, 128, 129}, {0, 3});
}

TEST_CASE("f16 heads of any multiple of 16 dimensions: the oracle's answer in any number of blocks") {
  check_prefill({{"f16", "f16", 80, 4, 70, Layout::planar, true},
                 {"f16", "f16", 96, 3, 30, Layout::rows, true},
                 {"f16", "f16", 112, 3, 30, Layout::planar, false, 80},
                 {"f16", "f16", 160, 3, 30, Layout::planar, true, 96},
                 {"f16", "f16", 240, 3, 30, Layout::planar, true}},
                {300, 0, 5, 128, 129}, {0, 3});
}

TEST_CASE("heads of up to 576 dimensions of K and 512 of V: the oracle's answer in any number of blocks") {
  check_prefill({{"f16", "f16", 576, 4, 40, Layout::planar, true, 512},  // three work tiles a head
                 {"f16", "f16", 512, 3, 30, Layout::rows, false},
                 {"f16", "f16", 192, 3, 30, Layout::planar, true, 272}},
                {300, 0, 5, 128, 129}, {0, 3});
}

TEST_CASE("queries of any type at any place: the oracle's answer") {
  const auto context = open_context(DeviceKind::cpu);
  for (const Element type : {Element::f16, Element::bf16, Element::f32})
    for (Case test : {Case{"f16", "f16", 128, 4, 33, Layout::planar, true},
                      {"kv4", "q4_0", 128, 4, 33, Layout::planar, true},  // rotated
                      {"f16", "f16", 80, 3, 30, Layout::planar, true}}) {
      test.q_type = type;
      const Planned one = planned(registry(), test, "sm_90a");
      Judge judge(context, one, 2, 200);
      for (const QueryPlaces& places : {QueryPlaces{false, 0}, {true, 8}, {true, 3}}) {
        KernelHarness::Call call = prefill_call({200, 130}, 0);
        call.q = places;
        judge.check(call);
      }
    }
}

TEST_CASE("up to 64 query rows, which both consumers have: the oracle's answer in any number of blocks") {
  check_prefill({{"kv4", "kv4", 128, 4, 10, Layout::planar, true},
                 {"f16", "f16", 128, 8, 8, Layout::planar, false},
                 {"q8_0", "q4_0", 64, 4, 16, Layout::rows, true},
                 paged("tbq4_0", "kv3", 16, Layout::planar, 13)},
                {700, 0, 5, 128, 129}, {0, 1, 3});
  // A block that has one tile, which is one consumer's: the other one still keeps the order at the tensor cores.
  check_prefill({{"kv4", "kv4", 128, 4, 10, Layout::planar, true}}, {100}, {0, 1, 2});
}

// Every third format with one of the head sizes at which prefill serves it, in turn, or with KVJIT_FULL=1 every format
// with all of them: compiling takes a second a format.
TEST_CASE("every format that prefill serves, as K and V, is read by prefill") {
  const bool is_complete = std::getenv("KVJIT_FULL") != nullptr;
  std::map<int, int> served_at;
  std::vector<Case> cases;
  std::size_t turn = 0;
  for (const std::string& name : format_names(registry())) {
    std::vector<Case> served;
    for (const int head_dim : fitting(registry(), name, {128, 64, 256})) {
      // Blocks of 256 query rows, and of 128, in turn.
      const Case test{name, name, head_dim, 3, turn % 2 ? 22 : 44, Layout::planar, true};
      if (plan_prefill(planned(registry(), test, "sm_90a").problem)) served.push_back(test), ++served_at[head_dim];
    }
    if (served.empty()) continue;
    if (is_complete)
      cases.insert(cases.end(), served.begin(), served.end());
    else
      cases.push_back(served[turn % served.size()]);
    ++turn;
  }
  CHECK(served_at[128] >= 50);
  CHECK(served_at[64] >= 25);
  CHECK(served_at[256] >= 50);
  check_prefill(cases, {150}, {0});
}

// The maximum of later tiles is not computed: sums of probabilities show that one is too large for fp16, or for fp32
// (templates/kernels/prefill/softmax.cuh). Token 140 of the second tile is seen whole by all rows; token 200 is hidden
// from some of the rows.
TEST_CASE("a token far above all of the first tile: probabilities beyond fp16 and beyond fp32 are right") {
  const auto context = open_context(DeviceKind::cpu);
  for (const char* format : {"f16", "q8_0", "kv4"}) {
    const Planned one = planned(registry(), {format, "f16", 128, 4, 70, Layout::planar, true}, "sm_90a");
    for (const int token : {140, 200})
      for (const float log2 : {14.f, 17.f, 100.f, 127.f, 200.f}) {
        Judge judge(context, one, 1, 300);
        judge.reshape(1.f, 1.f, log2, token);
        INFO("token ", token, ", 2 to the power of ", log2);
        judge.check(prefill_call({257}, 1));
      }
    Judge judge(context, one, 1, 300);  // the whole first tile is far below, so all scores of the second count
    judge.reshape(1.f, 1.f, -300.f, 0, 128, 1.f);
    judge.check(prefill_call({257}, 1));
  }
}

// 240 query rows of two KV heads: two work tiles a sequence, which are split in two on the CPU back-end.
const Case kSplit = {"kv3", "kv4", 128, 4, 60, Layout::rows, true};
// 60 query rows, which both consumers have: each split has two parts.
const Case kAlternating = {"kv3", "kv4", 128, 4, 15, Layout::rows, true};

TEST_CASE("a sequence has the same bits in any batch and any number of blocks, though its work tiles are split") {
  const auto context = open_context(DeviceKind::cpu);
  for (const Case& test : {kSplit, kAlternating}) {
    const Planned one = planned(registry(), test, "sm_90a");
    AttentionCall call;
    call.sequences = 4, call.tokens = 900, call.kv_heads = kKvHeads;
    CHECK(prefill_splits(one.source, context->backend()->info(), call) == 2);
    Judge judge(context, one, 4, 900);
    const auto first_sequence = [&](std::vector<float> out) {
      out.resize(out.size() / 4);
      return out;
    };
    const auto alone = first_sequence(judge.check(prefill_call({900, 0, 0, 0}, 0)));
    for (const int blocks : {0, 1, 3})
      CHECK(first_sequence(judge.check(prefill_call({900, 130, 700, 257}, blocks))) == alone);
  }
}

TEST_CASE("calls one behind the other share a workspace: each leaves its counters zero") {
  for (const Case& test : {kSplit, kAlternating}) {
    Caller caller(open_context(DeviceKind::cpu), planned(registry(), test, "sm_90a"), {2, kKvHeads, 600});
    for (const std::vector<int>& lengths : {std::vector<int>{600, 300}, {0, 512}, {600, 600}}) {
      const Caller::Shape shape{2, 600, 0, lengths, ManyRows::prefill};
      CHECK(must(caller.run(shape)).kernels.at(0).find("prefill.") == 0);
      CHECK(caller.error(shape) <= kMaxKernelError);
      CHECK(caller.counters_are_zero());
    }
  }
}

TEST_CASE("a program without prefill refuses a call that asks for it, and chooses decode by itself") {
  const auto context = open_context(DeviceKind::cpu);
  const Planned without = planned(registry(), {"kv4", "kv4", 128, 4, 1, Layout::planar}, "sm_90a"),
                with = planned(registry(), {"kv4", "kv4", 128, 4, 17, Layout::planar}, "sm_90a");
  const auto attend = [&](const Planned& one, ManyRows many_rows) {
    const CacheShape shape{1, 1, 20};
    KernelHarness harness =
        must(KernelHarness::make(context, must(Program::create(context, one.source)), one.problem, shape));
    for (const int side : {0, 1}) must(harness.set_rows(side, encoded(one.problem.k, 128, shape, side).rows));
    KernelHarness::Call call{20, {}, 0, false};
    call.many_rows = many_rows;
    return harness.attend(std::vector<float>(std::size_t(one.problem.query_rows()) * 128, 0.5f), call);
  };
  const auto refused = attend(without, ManyRows::prefill);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == Code::unsupported);
  CHECK(refused.error().message.find("has no prefill kernel") != std::string::npos);
  for (const auto& [many_rows, kernel] :
       {std::pair{ManyRows::chosen, "decode."}, {ManyRows::decode, "decode."}, {ManyRows::prefill, "prefill."}}) {
    const auto outcome = must(attend(with, many_rows));
    CHECK(outcome.report.kernels.at(0).find(kernel) == 0);
  }
}

}  // namespace
}  // namespace kvjit::test
