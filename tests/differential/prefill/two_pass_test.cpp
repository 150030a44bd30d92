// Prefill in two passes on the CPU back-end against the oracle. Chunks of the context have two tiles there for two KV
// heads of 128 dimensions, so these contexts have up to three.
// SPDX-License-Identifier: MIT
#include <algorithm>

#include "runtime/launch/prefill.hpp"
#include "tests/differential/decode/features.hpp"
#include "tests/differential/prefill/rows.hpp"

namespace kvjit::test {
namespace {

KernelHarness::Call two_pass_call(const std::vector<int>& lengths, int blocks = 0) {
  KernelHarness::Call call{0, lengths, blocks, false};
  call.many_rows = ManyRows::two_pass;
  return call;
}

Case paged(const char* k, const char* v, int page_tokens, Layout page_layout) {
  return {k, v, 128, 3, 30, Layout::paged, true, 0, page_tokens, page_layout};
}

ContextChunks chunks_of(const Planned& one, int sequences, int tokens) {
  AttentionCall call;
  call.sequences = sequences, call.tokens = tokens, call.kv_heads = kKvHeads;
  return lay_out_context_chunks(one.source, open_context(DeviceKind::cpu)->backend()->info(), call);
}

TEST_CASE("formats and layouts, contexts of several chunks and groups of sequences: the oracle's answer") {
  const auto context = open_context(DeviceKind::cpu);
  int turn = 0;
  for (const Case& test : {Case{"kv4", "kv4", 128, 4, 70, Layout::planar, true},
                           {"q8_0", "q4_0", 128, 4, 33, Layout::rows, true},
                           {"planar4", "f16", 128, 4, 33, Layout::planar, true},
                           {"q4_1", "bf16", 64, 4, 33, Layout::planar, false},
                           {"kv4", "q8_0", 256, 3, 30, Layout::planar, true},
                           {"fp8_e4m3", "tbq4_0", 192, 3, 30, Layout::planar, true, 128},
                           {"tbq4_dense256_qsfirst_raw", "tbq3_dense256_qsfirst_raw", 256, 3, 30, Layout::rows, true},
                           {"tbqp4_0", "turbo_split_68", 256, 3, 30, Layout::planar, true},
                           {"turbo4_qjl68", "tbq4_dense_qsfirst_raw", 128, 4, 33, Layout::rows, true},
                           {"q8_0", "q4_0", 576, 4, 33, Layout::rows, true, 512},
                           {"q4_0", "q8_0", 96, 3, 30, Layout::planar, true},
                           paged("f16", "f16", 16, Layout::planar),
                           paged("kv3", "q4_0", 64, Layout::planar),
                           paged("q8_0", "kv4", 8, Layout::rows)}) {
    const Planned one = planned(registry(), test, "sm_90a");
    INFO(one.test.name());
    REQUIRE(!one.source.second_pass.empty());
    Judge judge(context, one, 5, 700);
    judge.check(two_pass_call({700, 0, 5, 256, 257}, ++turn % 2 ? 3 : 1));  // blocks
    judge.check(two_pass_call({100, 0, 5, 128, 77}));
  }
}

TEST_CASE("the workspace of two passes does not grow with the context") {
  const Planned one = planned(registry(), {"kv4", "kv4", 128, 4, 70, Layout::planar, true}, "sm_90a");
  CHECK(chunks_of(one, 1, 700).tokens == 256);
  CHECK(chunks_of(one, 1, 700).bytes == chunks_of(one, 1, 1 << 20).bytes);
  CHECK(chunks_of(one, 7, 700).group == 1);
  CHECK(chunks_of(one, 5, 100).tokens == 128);
  CHECK(chunks_of(one, 3, 100).group == 2);
  CHECK(chunks_of(one, 5, 100).group == 2);
  CHECK(chunks_of(one, 500, 100).bytes == chunks_of(one, 2, 100).bytes);
}

TEST_CASE("a sequence has the same bits in any batch, though its context has several chunks") {
  const auto context = open_context(DeviceKind::cpu);
  const Planned one = planned(registry(), {"kv3", "kv4", 128, 4, 60, Layout::rows, true}, "sm_90a");
  Judge judge(context, one, 4, 900);
  const auto first_sequence = [&](std::vector<float> out) {
    out.resize(out.size() / 4);
    return out;
  };
  for (const int length : {900, 200}) {
    const auto alone = first_sequence(judge.check(two_pass_call({length, 0, 0, 0})));
    for (const int blocks : {0, 1, 3})
      CHECK(first_sequence(judge.check(two_pass_call({length, 130, 900, 257}, blocks))) == alone);
  }
}

TEST_CASE(
    "run-time query lengths: calls of one number of queries take two passes, ragged batches say what is missing") {
  const auto context = open_context(DeviceKind::cpu);
  for (const auto& [format, arch] : {std::pair{"kv4", "sm_90a"}, {"turbo4_qjl68", "sm_90a"}, {"kv3", "sm_86"}}) {
    Case test{format, "q8_0", 128, 4, 100, Layout::planar, true};
    test.is_varlen = true;
    const Planned one = planned(registry(), test, arch);
    INFO(one.test.name());
    Judge judge(context, one, 3, 700);
    for (const int queries : {100, 17}) {
      KernelHarness::Call call = two_pass_call({700, 300, 150});
      call.queries = queries;
      judge.check(call);
    }
    KernelHarness::Call ragged = two_pass_call({700, 300, 150});
    ragged.query_counts = {70, 1, 29};
    const auto refused = judge.attend(ragged);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().message.find("ragged batch") != std::string::npos);
  }
}

struct Mutation {
  Role role;  // prefill: of the second pass
  const char *text, *broken;
};
const Mutation kMutations[] = {
    {Role::prefill, "token < chunk.end_token ? token : chunk.end_token", "token"},  // a tile too many
    {Role::prefill, "token > chunk.first_token ? token : chunk.first_token", "token"},
    {Role::prefill, "(first - stored_from) * stride", "first * stride"},
    {Role::prefill, "chunk.first_token > 0", "false"},  // the chunks before are forgotten
    {Role::prefill, "o[b][i] *= factor[i / 2 % 2];", ""},
    {Role::prefill, "softmax[b].sum[h] *= factor[h];", "softmax[b].sum[h] *= 1.f;"},
    {Role::prefill, "work.first_row >= Plan::kAllRows", "false"},  // empty splits have the number 0
    {Role::dequantize_chunk_v, "args.first_token + at.token", "at.token"},
};

TEST_CASE("broken chunks are noticed") {
  const auto context = open_context(DeviceKind::cpu);
  for (const Mutation& mutation : kMutations) {
    INFO(std::string(mutation.text));
    // 240 query rows of two KV heads: work tiles are split on the CPU back-end. Values have a kernel for any row.
    FeatureCase test{"kv4", "turbo_split_54", "features = [\"lse\", \"causal\"]", 4, 60};
    Planned one = planned(registry(), test, "sm_90a");
    ProgramSource& owner = mutation.role == Role::prefill ? one.source.second_pass.front() : one.source;
    Text& kernel = owner.kernels.at(mutation.role).text;
    std::string text = kernel.str();
    const auto at = text.find(mutation.text);
    REQUIRE(at != std::string::npos);
    text.replace(at, std::string(mutation.text).size(), mutation.broken);
    kernel = text;
    FeatureJudge judge(context, one, 3, 700);
    judge.many_rows = ManyRows::two_pass;
    CHECK(judge.is_noticed({700, 300, 0}, 3));
  }
}

TEST_CASE("features in two passes, contexts of several chunks: the oracle's answer") {
  const auto context = open_context(DeviceKind::cpu);
  for (const FeatureCase& test :
       {FeatureCase{"kv4", "q8_0", "features = [\"lse\", \"causal\"]", 4, 60},
        {"q8_0", "kv4", "window = [200, -1]\nfeatures = [\"causal\", \"sinks\", \"lse\"]", 4, 70, Layout::rows},
        {"tbq4_dense256_qsfirst_raw", "kv3",
         "head_dim = 256\nsoftcap = 5.0\nfeatures = [\"causal\", \"mask\", \"alibi\", \"packed_mask\", "
         "\"position_offset\", \"lse\"]",
         3, 30}}) {
    const Planned one = planned(registry(), test, "sm_90a");
    INFO(one.problem.id);
    for (const std::vector<int>& lengths : {std::vector<int>{700, 0, 33, 256}, {100, 0, 33, 128}}) {
      FeatureJudge judge(context, one, 4, *std::max_element(lengths.begin(), lengths.end()));
      judge.many_rows = ManyRows::two_pass;
      CHECK_FALSE(judge.is_wrong(lengths, 0));
    }
  }
}

}  // namespace
}  // namespace kvjit::test
