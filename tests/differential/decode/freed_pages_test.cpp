// Decode and the reference kernel over paged caches whose unseen pages are freed: in front of a window, after what a
// query sees, outside of ranges, and of sequences of which no token is seen. Checked calls check the other entries
// alone.
// SPDX-License-Identifier: MIT
#include "tests/differential/freed_pages.hpp"

namespace kvjit::test {
namespace {

struct Call {
  FreedCase test;
  const char* arch;
  std::vector<int> lengths;
  SeenInputs inputs = {};
  std::vector<int> counts = {};  // a ragged batch
  int queries = 0;
};

// Tiles that lie in a page, and tiles of several pages of which the first are freed; planes and whole blocks; one
// query and several, single warps and teams, chunks of queries.
const Call kCalls[] = {
    {{"kv4", "tbq4_0", "window = [20, 0]"}, "sm_90a", {300, 0, 33, 5}},
    {{"f16", "q8_0", "window = [37, -1]\nfeatures = [\"causal\"]\nquery_length = 3", 8}, "sm_90a", {300, 129, 2}},
    {{"q8_0", "kv3", "window = [70, 3]\nquery_length = 2", 64, Layout::rows}, "sm_90a", {400, 64, 65}},
    {{"fp8_e4m3", "kv4", "window = [300, 0]\nfeatures = [\"position_offset\"]", 256},
     "sm_80",
     {1000, 600, 512},
     {{}, {0, -200, 400}, -20}},
    // ranges: in the middle, empty, at the end, and of the whole sequence
    {{"f16", "f16", "features = [\"token_ranges\"]", 16},
     "sm_90a",
     {300, 300, 290, 40},
     {{100, 137, 50, 50, 250, 400, -5, 1000}}},
    {{"tbq4_0", "q8_0", "window = [90, -1]\nfeatures = [\"token_ranges\", \"causal\"]\nquery_length = 2", 8,
      Layout::rows},
     "sm_90a",
     {300, 300, 290},
     {{200, 250, 0, 100, 260, 280}}},
    {{"kv4", "kv4", "window = [60, -1]\nfeatures = [\"causal\"]\nquery_length = 4\nq_heads_per_kv = 8"},
     "sm_90a",
     {600, 40, 300}},
    {{"tbq4_0", "kv4", "features = [\"token_ranges\"]\nquery_length = 4\nq_heads_per_kv = 8", 16, Layout::rows},
     "sm_80",
     {600, 40, 300},
     {{100, 365, 0, 0, 299, 300}}},
    {{"kv4", "q8_0", "window = [40, -1]\nfeatures = [\"causal\"]\nquery_length = 22\nq_heads_per_kv = 4"},
     "sm_90a",
     {300, 40, 128}},
    {{"q8_0", "kv4", "append = true\nwindow = [20, 0]\nfeatures = [\"causal\"]\nquery_length = 2"},
     "sm_90a",
     {300, 1, 33}},
    // V in K's rows, by bulk copies
    {{"f16", "f16", "features = [\"token_ranges\"]\nhead_dim_k = 576\nhead_dim_v = 512\nq_heads_per_kv = 16", 64,
      Layout::rows, "v.in_keys = true"},
     "sm_90a",
     {300, 300, 100},
     {{100, 137, 50, 50, 90, 100}}},
};
// The table of a sequence without queries may hold anything, too.
const char* const kAny = "query_length = \"any\"\nmax_query_length = 40\nfeatures = [\"causal\"]\n";
const Call kRagged[] = {
    {{"q8_0", "kv4", std::string(kAny) + "window = [20, -1]"}, "sm_80", {300, 128, 40, 290, 1}, {}, {17, 0, 40, 3, 1}},
    {{"kv4", "f16", kAny, 8}, "sm_80", {300, 128, 40, 290, 1}, {}, {1, 0, 40, 0, 1}}};

void check_calls(std::span<const Call> calls) {
  const auto context = open_context(DeviceKind::cpu);
  std::vector<Planned> all;
  for (const Call& call : calls) all.push_back(planned(registry(), call.test, call.arch));
  warm_up(context, all, 2);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Call& call = calls[i];
    INFO(call.test.toml(), std::string(call.arch));
    FreedPages pages(context, all[i], call.lengths, call.inputs, call.counts, call.queries);
    pages.warm_up(ManyRows::decode);
    CHECK(pages.free_unseen() > 0);
    for (const int blocks : {0, 1, 5}) CHECK(pages.end_of_attention(ManyRows::decode, blocks, false) == 0);
    CHECK(pages.end_of_attention(ManyRows::decode, 0, true) == 0);
  }
}

TEST_CASE("freed pages: decode and the reference kernel touch no page that no query sees") { check_calls(kCalls); }
TEST_CASE("freed pages: run-time query lengths, ragged batches") { check_calls(kRagged); }

TEST_CASE("freed pages: checks are of the entries of pages that some query sees, and of no other") {
  const auto context = open_context(DeviceKind::cpu);
  for (const Call& one : {kCalls[0], kCalls[5], kRagged[0]}) {
    Call call = one;
    call.test.more += "\ntarget.checks = true";
    INFO(call.test.toml());
    FreedPages pages(context, planned(registry(), call.test, call.arch), call.lengths, call.inputs, call.counts);
    CHECK(pages.checked().count == 0);
    pages.free_unseen();
    CHECK(pages.end_of_attention(ManyRows::decode, 0, false) == 0);
    CHECK(pages.end_of_attention(ManyRows::decode, 0, true) == 0);
    for (int s = 0; s < pages.sequences(); ++s)
      for (int i = 0; i < pages.pages(); ++i) {
        if (!pages.is_seen(s, i)) continue;
        const int page = std::exchange(pages.entry(s, i), 1 << 20);
        const kv::CheckRecord record = pages.checked();
        INFO("sequence ", s, ", entry ", i);
        CHECK(record.count == 2);  // the same table serves K and V
        CHECK(record.value == 1 << 20);
        pages.entry(s, i) = page;
      }
  }
}

struct Mutation {
  const char *file, *from, *to;
  int call;
  bool is_reference = false;
};
// Mutations: entries before the first page that is seen, and after the last one; sequences of which no token is seen;
// sequences of fewer queries than the plan has.
constexpr Mutation kMutations[] = {
    {"kernels/decode/paged.cuh", "at < first_page_", "false", 1},
    {"kernels/decode/paged.cuh", "(split.seen.end - 1) / Side::kPageTokens", "(split.length - 1) / Side::kPageTokens",
     5},
    {"kernels/decode/paged.cuh", "(split.seen.end - 1) / Side::kPageTokens", "(split.length - 1) / Side::kPageTokens",
     7},
    {"kernels/decode/tile_scheduler.cuh", "seen.end <= seen.first ? 0 : length", "false ? 0 : length", 4},
    {"kernels/decode/query_ranges.cuh", "Tokens::kQueries - query_range(varlen, sequence).count", "0", 11},
    {"kernels/reference/reference.cuh", "if (!features.sees(token)) continue;", "", 0, true},
};

TEST_CASE("freed pages: a kernel that touches one is noticed") {
  const auto context = open_context(DeviceKind::cpu);
  for (const Mutation& mutation : kMutations) {
    const Call& call = mutation.call < int(std::size(kCalls)) ? kCalls[mutation.call]
                                                              : kRagged[mutation.call - int(std::size(kCalls))];
    const Registry broken = changed_registry(mutation.file, mutation.from, mutation.to);
    const Planned one = planned(broken, call.test, call.arch);
    warm_up(context, {one}, 1);
    FreedPages pages(context, one, call.lengths, call.inputs, call.counts);
    pages.free_unseen();
    CHECK_MESSAGE(pages.end_of_attention(ManyRows::decode, 1, mutation.is_reference) == -SIGSEGV,
                  "not noticed: ", std::string(mutation.from), " -> ", std::string(mutation.to), ", call ",
                  mutation.call);
  }
}

}  // namespace
}  // namespace kvjit::test
