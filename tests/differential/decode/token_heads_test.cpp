// Token-major heads (cache.token_heads) on the CPU back-end: any number of blocks that take all heads of a token, over
// ragged lengths, with several formats of K and V, and query rows of a head that fill a block of columns or not.
// SPDX-License-Identifier: MIT
#include <algorithm>

#include "tests/differential/harness.hpp"

namespace kvjit::test {
namespace {

constexpr unsigned kCompileThreads = 2;

Case together(const char* k, const char* v, int gqa, int query_length, bool is_causal, int token_heads) {
  Case test{k, v, 128, gqa, query_length, Layout::rows, is_causal};
  test.token_heads = token_heads;
  return test;
}

// Formats: integers and a table; Q exact in two fp16 terms, with sums of Q, in tiles of 16 tokens because tiles of 32
// do not fit; one query row a head.
const Case kCases[] = {together("kv4", "tbq3_0", 4, 2, true, 8), together("tbq4_0", "q8_0", 3, 1, false, 8),
                       together("q4_1", "f16", 2, 3, true, 8), together("q8_0", "q4_0", 1, 1, false, 2)};

// Tokens: none, less than a tile, whole tiles, whole tiles and one more.
const std::vector<int> kLengths = {257, 0, 40, 1, 128};
constexpr int kSequences = 5;

// Each head's queries are rounded in a unit of their own, so the bits of one head must not depend on the size of
// another's queries.
void check_units(Judge& judge, int heads) {
  const KernelHarness::Call call{0, kLengths, 3, false};
  const std::vector<float> before = judge.check(call);
  judge.scale_queries(0, 1000.f);
  const std::vector<float> after = must(judge.attend(call)).out;
  const std::size_t head = before.size() / std::size_t(kSequences * heads);
  int others = 0, scaled = 0;
  for (std::size_t i = 0; i < before.size(); ++i)
    (i / head % std::size_t(heads) == 0 ? scaled : others) += before[i] != after[i];
  CHECK(others == 0);
  CHECK(scaled > 0);
}

TEST_CASE("token-major heads: any number of blocks over ragged lengths, the same bits in any order, any size of Q") {
  const auto context = open_context(DeviceKind::cpu), shuffled = open_context(DeviceKind::cpu, 7);
  std::vector<Planned> all;
  for (const Case& test : kCases) all.push_back(planned(registry(), test, context->backend()->info().arch));
  warm_up(context, all, kCompileThreads);
  for (const Planned& one : all) {
    Judge judge(context, one, kSequences), again(shuffled, one, kSequences);
    for (const int blocks : {1, 3, 7, 29}) {
      CAPTURE(blocks);
      const KernelHarness::Call call{0, kLengths, blocks, false};
      const auto out = judge.check(call);
      CHECK(must(again.attend(call)).out == out);
      const auto row = out.size() / kSequences;  // the sequence without tokens must give zeros
      CHECK(std::all_of(out.begin() + std::ptrdiff_t(row), out.begin() + std::ptrdiff_t(2 * row),
                        [](float x) { return x == 0; }));
    }
    for (const int tokens : judge.ragged_lengths()) judge.check({tokens, {}, 0, false});
    check_units(judge, one.test.token_heads);
  }
}

TEST_CASE("token-major heads: large and small values, and a token far above the rest in the last tile") {
  const auto context = open_context(DeviceKind::cpu);
  const Planned one = planned(registry(), kCases[0], context->backend()->info().arch);
  for (const float v_factor : {1e-3f, 200.f})
    for (const int sink : {0, 256}) {
      Judge judge(context, one);
      judge.reshape(v_factor, 1.f, 17.f, sink);
      judge.check({257, {}, 3, false});
    }
}

struct Mutation {
  const char *file, *from, *to;
};
// Mutations: missing rows are not cleared; staged rows stand for other tokens; query rows get another head.
constexpr Mutation kMutations[] = {
    {"kernels/decode/token_heads.cuh", "if (valid >= kTile) return;", "return;"},
    {"kernels/decode/stage_token_heads.cuh", "return row % 8 * (kTile / 8) + row / 8;", "return row;"},
    {"kernels/decode/token_heads.cuh", "(column / Plan::kGroup * Plan::kHeads + own_head<Plan>())",
     "(column / Plan::kGroup * Plan::kHeads + 0)"}};

TEST_CASE("token-major heads: a broken kernel is noticed") {
  const auto context = open_context(DeviceKind::cpu);
  std::vector<Planned> all;
  // Causal plans hide missing rows in another way, too (kernels/decode/hidden_values.cuh).
  for (const Mutation& mutation : kMutations)
    all.push_back(planned(changed_registry(mutation.file, mutation.from, mutation.to), kCases[all.empty() ? 1 : 0],
                          context->backend()->info().arch));
  warm_up(context, all, kCompileThreads);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Judge judge(context, all[i]);
    const bool is_wrong = judge.is_wrong({250, {}, 1, false}) || judge.is_wrong({20, {}, 1, false});  // one tile
    CHECK_MESSAGE(is_wrong, "not noticed: ", std::string(kMutations[i].from));
  }
}

}  // namespace
}  // namespace kvjit::test
