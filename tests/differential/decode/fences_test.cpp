// Decode over buffers that end where readable memory ends. Kernels prefetch a ring of tiles, but must not read behind
// caches, page tables, lengths and queries. Other tests judge their output.
// SPDX-License-Identifier: MIT
#include "tests/differential/harness.hpp"
#include "tests/support/fenced_backend.hpp"

namespace kvjit::test {
namespace {

// The last sequence is the longest, so its tiles and its row of the page table end the buffers.
constexpr int kSequences = 3, kLongest = 801;
const std::vector<int> kLengths = {40, 0, kLongest};

const Case kCases[] = {{"kv4", "tbq4_0", 128, 4, 2, Layout::paged, true, 0, 16, Layout::planar},
                       {"tbq4_0", "q8_0", 128, 4, 1, Layout::paged, false, 0, 8, Layout::rows},
                       {"kv3", "q5_1", 128, 4, 1, Layout::planar},
                       {"q8_0", "q4_0", 128, 4, 1, Layout::rows},
                       {"kv4", "kv4", 128, 4, 4, Layout::planar, true},
                       {"q8_0", "q4_0", 128, 1, 1, Layout::rows, false, 0, 0, Layout::planar, 2}};

// Attends over a cache with fences in a child process and returns how the child ends (end_of).
int end_of_attention(const std::shared_ptr<Context>& context, const Planned& one) {
  const Judge judge(context, one, kSequences, kLongest);
  return end_of([&] { return judge.attend({0, kLengths, 3, false}) && judge.attend({kLongest, {}, 1, false}); });
}

TEST_CASE("fences: attention reads nothing behind its buffers") {
  const auto context = open_fenced();
  std::vector<Planned> all;
  for (const Case& test : kCases) all.push_back(planned(registry(), test, context->backend()->info().arch));
  warm_up(context, all, 2);
  for (const Planned& one : all) CHECK_MESSAGE(end_of_attention(context, one) == 0, one.test.name());
}

TEST_CASE("fences: quantize and dequantize read and write nothing behind their buffers") {
  const auto context = open_fenced();
  const Planned one = planned(registry(), kCases[3], context->backend()->info().arch);
  Judge judge(context, one, kSequences, kLongest);
  const auto does = [&] {
    for (const int side : {0, 1})
      if (!judge.harness().quantize(side, judge.cache(side).x) || !judge.harness().dequantize(side)) return false;
    return true;
  };
  CHECK(end_of(does) == 0);
}

struct Mutation {
  const char *file, *from, *to;
  int test;
};
// Mutations: page numbers are read behind the table; rows are staged that do not exist.
constexpr Mutation kMutations[] = {
    {"kernels/decode/paged.cuh", "least(tile_ / kTilesOfPage * kPages + i, last_page_)",
     "(tile_ / kTilesOfPage * kPages + i)", 0},
    {"kernels/decode/decode.cuh", "clamp_to(readable - tile * kTile, kTile)", "kTile", 3},
    {"kernels/decode/token_heads.cuh", "clamp_to(split_.template readable<Plan>() - tile * kTile, kTile)", "kTile", 5}};

TEST_CASE("fences: a kernel that reads behind them is noticed") {
  const auto context = open_fenced();
  for (const Mutation& mutation : kMutations) {
    const Registry broken = changed_registry(mutation.file, mutation.from, mutation.to);
    const Planned one = planned(broken, kCases[mutation.test], context->backend()->info().arch);
    CHECK_MESSAGE(end_of_attention(context, one) == -SIGSEGV, "not noticed: ", std::string(mutation.from));
  }
}

}  // namespace
}  // namespace kvjit::test
