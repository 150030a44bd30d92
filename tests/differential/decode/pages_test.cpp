// Paged caches on the CPU back-end: pages of every size, which lie at random places among unused pages; rows placed in
// them as engines place them; ragged sequences whose page tables end in invalid entries.
// SPDX-License-Identifier: MIT
#include <algorithm>

#include "tests/differential/harness.hpp"

namespace kvjit::test {
namespace {

constexpr unsigned kCompileThreads = 2;
constexpr int kSequences = 5;
// Tokens: more tiles than a block has warps, none, less than a tile, one, whole tiles and pages.
constexpr int kLongest = 801;
const std::vector<int> kLengths = {kLongest, 0, 40, 1, 128};
constexpr PagePlaces kPlaces[] = {PagePlaces::own, PagePlaces::other, PagePlaces::slots};

Case paged(const char* k, const char* v, int page_tokens, Layout page_layout, int head_dim = 128, int queries = 1,
           bool is_causal = false, int gqa = 4, int head_dim_v = 0) {
  return {k, v, head_dim, gqa, queries, Layout::paged, is_causal, head_dim_v, page_tokens, page_layout};
}

// Code rows are copied by 16, 8 and 4 bytes and by plain loads; scales are dense, of 4 and 8 bytes, and of 1 byte;
// whole blocks are aligned, in chunks and unaligned; layouts are those of vLLM and Atlas; single warps and teams of
// warps.
const Case kCases[] = {paged("kv4", "tbq4_0", 16, Layout::planar, 128, 2, true),
                       paged("f16", "q8_0", 8, Layout::planar),
                       paged("kv3", "kv2", 64, Layout::planar),
                       paged("q4_0", "f32", 256, Layout::planar),
                       paged("q5_1", "mxfp4", 8, Layout::planar, 32),
                       paged("atlas_turbo4", "atlas_turbo3", 16, Layout::planar),
                       paged("tbq4_0", "q8_0", 8, Layout::rows, 128, 2, true),
                       paged("vllm_k4_nc", "vllm_v3", 16, Layout::rows),
                       paged("fp8_e4m3", "vllm_v4", 32, Layout::rows),
                       paged("f16", "kv4", 64, Layout::rows),
                       paged("q8_0", "tbq3_0", 256, Layout::rows),
                       paged("tbq4_0", "f16", 16, Layout::planar, 256, 1, false, 4, 64),
                       paged("kv4", "kv4", 16, Layout::planar, 128, 4, true, 8),
                       paged("tbq4_0", "kv4", 32, Layout::rows, 128, 4, true, 8)};

std::vector<Planned> plan_all(const std::shared_ptr<Context>& context) {
  std::vector<Planned> all;
  for (const Case& test : kCases) all.push_back(planned(registry(), test, context->backend()->info().arch));
  warm_up(context, all, kCompileThreads);
  return all;
}

TEST_CASE("pages: the oracle's answer, however rows lie in them, over ragged lengths in any number of blocks") {
  const auto context = open_context(DeviceKind::cpu);
  for (const Planned& one : plan_all(context))
    for (const PagePlaces places : kPlaces) {
      Judge judge(context, one, kSequences, kLongest, places);
      CAPTURE(int(places));
      const auto out = judge.check({0, kLengths, 3, false});
      const auto row = out.size() / kSequences;  // the sequence without tokens must give zeros
      CHECK(std::all_of(out.begin() + std::ptrdiff_t(row), out.begin() + std::ptrdiff_t(2 * row),
                        [](float x) { return x == 0; }));
      judge.check({257, {}, 7, false});
      if (places != PagePlaces::own) continue;
      judge.check({0, kLengths, 1, false});
      judge.check({0, kLengths, 0, true});
    }
}

TEST_CASE("pages: another order of lanes gives the same bits") {
  const auto context = open_context(DeviceKind::cpu), shuffled = open_context(DeviceKind::cpu, 7);
  for (const Case& test : {kCases[0], kCases[6]}) {
    const Planned one = planned(registry(), test, context->backend()->info().arch);
    Judge judge(context, one, kSequences, kLongest), again(shuffled, one, kSequences, kLongest);
    CHECK(must(again.attend({0, kLengths, 7, false})).out == must(judge.attend({0, kLengths, 7, false})).out);
  }
}

// Returns all bytes of both sides, and the bytes between and behind them.
std::vector<std::uint8_t> bytes_of(const std::shared_ptr<Context>& context, const KernelHarness& harness,
                                   std::size_t bytes) {
  std::vector<std::uint8_t> all(bytes);
  must(context->backend()->copy_to_host(all.data(), harness.memory(0), all.size()));
  return all;
}

TEST_CASE(
    "pages: quantize by table and by slots stores the rows, leaves out negative slots, and touches nothing else") {
  const auto context = open_context(DeviceKind::cpu);
  constexpr int kTokens = 70;
  // Formats without padding, so that every byte of a row is written: one row a warp, bulk tiles, and whole blocks a
  // lane.
  for (const Case& test : {kCases[0], kCases[6], kCases[1], kCases[5]})
    for (const PagePlaces places : kPlaces)
      for (const int sequences : {2, 16}) {
        const Planned one = planned(registry(), test, context->backend()->info().arch);
        INFO(test.name(), ", places ", int(places), ", sequences ", sequences);
        const auto program = must(Program::create(context, one.source));
        const CacheShape shape{sequences, kKvHeads, kTokens, 1, places};
        const auto harness_of = [&] { return must(KernelHarness::make(context, program, one.problem, shape)); };
        const std::size_t bytes = memory_bytes(one.source, shape), rows = std::size_t(sequences) * kTokens;
        KernelHarness by_table = harness_of(), by_slots = harness_of(), expected = harness_of(),
                      expected_skipped = harness_of();
        std::vector<bool> skipped(rows);
        for (std::size_t i = 0; i < rows; ++i) skipped[i] = i % 3 == 1;
        for (const int side : {0, 1}) {
          const auto x =
              heavy_tailed(std::uint64_t(side) + 5, rows * kKvHeads * std::size_t(test.head_dim), test.head_dim);
          must(by_table.quantize(side, x));
          must(by_slots.quantize_slots(side, x, skipped));
          auto stored = must(by_table.rows(side));
          must(expected.set_rows(side, stored));
          const std::size_t row = stored.size() / (rows * kKvHeads);
          for (std::size_t i = 0; i < rows * kKvHeads; ++i)  // i counts [sequence][head][token]
            if (skipped[i / (kTokens * kKvHeads) * kTokens + i % kTokens])
              std::fill_n(stored.begin() + std::ptrdiff_t(i * row), row, std::uint8_t(0xff));
          must(expected_skipped.set_rows(side, stored));
        }
        CHECK(bytes_of(context, by_table, bytes) == bytes_of(context, expected, bytes));
        CHECK(bytes_of(context, by_slots, bytes) == bytes_of(context, expected_skipped, bytes));
      }
}

TEST_CASE("pages: the codec kernels agree with the reference codec") {
  const auto context = open_context(DeviceKind::cpu);
  for (const Case& test : {kCases[0], kCases[7]})
    for (const PagePlaces places : kPlaces) {
      Judge judge(context, planned(registry(), test, context->backend()->info().arch), 1, 257, places);
      check_codec_kernels(judge, test.name());
    }
}

struct Mutation {
  const char *file, *from, *to;
  int test;
  PagePlaces places;
};
// Mutations: the page of another tile, of the previous tile, of another sequence; rows of a page at a wrong place; the
// second page of a tile is not looked up; scales of the wrong page; rows that do not exist; scales treated as dense.
constexpr Mutation kMutations[] = {
    {"kernels/decode/paged.cuh", "tile_ += kWarps;", "tile_ += 1;", 0, PagePlaces::own},
    {"kernels/decode/paged.cuh", "tile_ % kTilesOfPage * kTile", "0", 2, PagePlaces::own},
    {"kernels/decode/paged.cuh", "split.sequence * table_of<Side>(side).row_stride", "0", 2, PagePlaces::own},
    {"kernels/decode/paged.cuh", "to + i * kRows * Side::kPitch", "to", 1, PagePlaces::own},
    {"kernels/decode/paged.cuh", "* kPages + i,", "* kPages,", 1, PagePlaces::own},
    {"kernels/decode/paged.cuh", "scales_ + page_[i] *", "scales_ + page_[0] *", 0, PagePlaces::own},
    {"kernels/decode/paged.cuh", "clamp_to(valid - i * kRows, kRows)", "kRows", 1, PagePlaces::own},
    {"kernels/decode/stage_pages.cuh", "if (side.scales_token_stride == kScaleBytes)", "if (true)", 0,
     PagePlaces::other},
    {"kernels/decode/stage_pages.cuh", "mine += kDown * stride", "mine += kDown * kRowBytes", 0, PagePlaces::other},
    {"kernels/decode/stage_pages.cuh", "row * stride + at", "row * kRowBytes + at", 0, PagePlaces::slots},
};

TEST_CASE("pages: a broken kernel is noticed") {
  const auto context = open_context(DeviceKind::cpu);
  for (const Mutation& mutation : kMutations) {
    const Planned broken = planned(changed_registry(mutation.file, mutation.from, mutation.to), kCases[mutation.test],
                                   context->backend()->info().arch);
    Judge judge(context, broken, kSequences, kLongest, mutation.places);
    CHECK_MESSAGE(judge.is_wrong({0, kLengths, 3, false}), "not noticed: ", std::string(mutation.from), " -> ",
                  std::string(mutation.to));
  }
}

}  // namespace
}  // namespace kvjit::test
