// Prefill in one pass and in two over paged caches whose unseen pages are freed.
// SPDX-License-Identifier: MIT
#include "tests/differential/freed_pages.hpp"

namespace kvjit::test {
namespace {

struct Call {
  FreedCase test;
  const char* arch;
  std::vector<int> lengths;
  std::vector<ManyRows> ways;
  SeenInputs inputs = {};
  std::vector<int> counts = {};  // a ragged batch
  int queries = 0;
};
constexpr ManyRows kOnePass = ManyRows::prefill, kTwoPasses = ManyRows::two_pass;

// The first pass of two by bulk kernels, by one for any row, and by whole blocks; chunks of the context that no query
// sees; wgmma and mma.sync.
const char* const kAny =
    "query_length = \"any\"\nmax_query_length = 100\nfeatures = [\"causal\"]\nq_heads_per_kv = 4\n";
const Call kCalls[] = {
    {{"kv4", "q8_0", "window = [200, -1]\nfeatures = [\"causal\"]\nquery_length = 30\nq_heads_per_kv = 4"},
     "sm_90a",
     {700, 0, 33, 300},
     {kOnePass, kTwoPasses}},
    {{"f16", "tbq4_0", "features = [\"token_ranges\"]\nquery_length = 20\nq_heads_per_kv = 4", 8, Layout::rows},
     "sm_90a",
     {700, 300, 300, 129},
     {kOnePass, kTwoPasses},
     {{300, 450, 50, 50, 250, 400, -5, 1000}}},
    {{"q4_0", "turbo_split_54",
      "window = [90, 4]\nfeatures = [\"position_offset\"]\nquery_length = 20\nq_heads_per_kv = 4", 256},
     "sm_90a",
     {700, 600, 512},
     {kTwoPasses},
     {{}, {0, -200, 400}, -20}},
    {{"q8_0", "kv4", "window = [100, 0]\nfeatures = [\"token_ranges\"]\nquery_length = 20\nq_heads_per_kv = 4", 64},
     "sm_86",
     {700, 300},
     {kTwoPasses},
     {{500, 680, 0, 290}}},
    {{"kv4", "kv3", std::string(kAny) + "window = [100, -1]"},
     "sm_90a",
     {700, 300, 400, 129},
     {kOnePass},
     {},
     {70, 0, 20, 5}},
    {{"kv4", "kv3", std::string(kAny) + "window = [100, -1]"}, "sm_90a", {700, 300, 129}, {kTwoPasses}, {}, {}, 20},
};

TEST_CASE("freed pages: prefill, in one pass and in two, touches no page that no query sees") {
  const auto context = open_context(DeviceKind::cpu);
  std::vector<Planned> all;
  for (const Call& call : kCalls) all.push_back(planned(registry(), call.test, call.arch));
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Call& call = kCalls[i];
    INFO(call.test.toml(), std::string(call.arch));
    FreedPages pages(context, all[i], call.lengths, call.inputs, call.counts, call.queries);
    for (const ManyRows way : call.ways) pages.warm_up(way);
    CHECK(pages.free_unseen() > 0);
    for (const ManyRows way : call.ways) {
      INFO((way == kOnePass ? "one pass" : "two passes"));
      CHECK(pages.end_of_attention(way, 3, false) == 0);
    }
  }
}

struct Mutation {
  const char *file, *from, *to;
  int call;
  ManyRows way;
};
constexpr Mutation kMutations[] = {
    {"kernels/prefill/work_tiles.cuh", "return {first, end > first ? end : first};", "return {0, work.length};", 0,
     kOnePass},
    {"formats/stored_lengths.cuh", "token < seen.first || token >= seen.end", "token >= seen.end", 0, kTwoPasses},
    {"formats/stored_lengths.cuh", "token < seen.first || token >= seen.end", "token < seen.first", 1, kTwoPasses},
    {"args/seen_tokens.cuh", "behind - queries", "behind - queries - 100", 5, kTwoPasses},
};

TEST_CASE("freed pages: prefill that touches one is noticed") {
  const auto context = open_context(DeviceKind::cpu);
  for (const Mutation& mutation : kMutations) {
    const Call& call = kCalls[mutation.call];
    const Registry broken = changed_registry(mutation.file, mutation.from, mutation.to);
    FreedPages pages(context, planned(broken, call.test, call.arch), call.lengths, call.inputs, call.counts,
                     call.queries);
    pages.warm_up(mutation.way);
    pages.free_unseen();
    CHECK_MESSAGE(pages.end_of_attention(mutation.way, 1, false) == -SIGSEGV,
                  "not noticed: ", std::string(mutation.from));
  }
}

}  // namespace
}  // namespace kvjit::test
