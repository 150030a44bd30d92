// Mutation test of synchronization: each wait of the decode kernel is removed from the emitted text in turn. The CPU
// back-end must give another answer or say why it gives none.
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <regex>

#include "tests/differential/caller.hpp"
#include "tests/differential/harness.hpp"

namespace kvjit::test {
namespace {

constexpr unsigned kCompileThreads = 2;
// Seed of the order in which lanes run. The order is not that of lane numbers, so that lane 0 is not the first lane
// that arrives at a wait.
constexpr unsigned kOrder = 7;

// Length 600 has more tiles than a block has warps, so that some warps end before others, and more splits than merge at
// once. Length 5 is less than a tile.
const std::vector<int> kLengths = {600, 5};
constexpr int kBlocks[] = {1, 3, kMostBlocks};

// This wait stands between two KV splits of one block: shared memory of the first split is read before the second split
// overwrites it. The wait has a test of its own.
constexpr const char* kBetweenSplits = "sync_block();  // the next split reuses shared memory";

struct Wait {
  std::size_t at, size;
  std::string line;  // the text from the wait to the line's end: the comment says what the wait is for
};

// Returns the waits between two places of the text.
std::vector<Wait> waits_of(const std::string& text, const std::string& from, const std::string& to) {
  const std::size_t begin = text.find(from), end = text.find(to);
  REQUIRE_MESSAGE(end != std::string::npos, "the kernel no longer has ", to);
  REQUIRE_MESSAGE(begin < end, "the kernel no longer has ", from, " ahead of ", to);
  static const std::regex wait(R"((copy_wait<[^>]*>|sync_warp|sync_block|sync_team<[^>]*>)\(\);|wait_phase\([^;]*\);)");
  std::vector<Wait> all;
  for (std::sregex_iterator i(text.begin() + std::ptrdiff_t(begin), text.begin() + std::ptrdiff_t(end), wait), none;
       i != none; ++i) {
    const std::size_t at = begin + std::size_t(i->position());
    const std::string line = text.substr(at, text.find('\n', at) - at);
    if (line != kBetweenSplits) all.push_back({at, std::size_t(i->length()), line});
  }
  return all;
}

// Removes the waits one by one and returns how many there are.
std::size_t check_waits(const Case& test, const std::string& from, const std::string& to,
                        const std::string& arch = "sm_90a") {
  const auto context = open_context(DeviceKind::cpu, kOrder);
  const Planned right = planned(registry(), test, arch);
  const std::vector<Wait> waits = waits_of(right.source.kernels.at(Role::decode).text.str(), from, to);
  std::vector<Planned> all = {right};
  for (const Wait& wait : waits) {
    all.push_back(right);
    Text& kernel = all.back().source.kernels.at(Role::decode).text;
    kernel = std::string(kernel.str()).replace(wait.at, wait.size, ";");
  }
  warm_up(context, all, kCompileThreads);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::string taken = i == 0 ? "nothing" : waits[i - 1].line;
    Judge judge(context, all[i], int(kLengths.size()), kLengths[0]);
    const auto is_wrong = [&](int blocks) { return judge.is_wrong({0, kLengths, blocks, false}); };
    CHECK_MESSAGE(std::any_of(std::begin(kBlocks), std::end(kBlocks), is_wrong) == (i > 0), test.name(),
                  ", taken out: ", taken);
  }
  return waits.size();
}

TEST_CASE("a removed wait is noticed") {
  // K's queries are held in registers and the output is rotated: the range has all waits from the load of Q to the
  // store of the output.
  CHECK(check_waits({"tbq3_0", "tbq4_0", 128, 4, 1, Layout::planar}, "class QueryRows", "======== the plan") == 7);
  // Rows of layout rows are copied in another way: the range has the waits of the main loop.
  CHECK(check_waits({"tbq3_0", "q8_0", 128, 4, 1, Layout::rows}, "KV_DEVICE void attend_split(",
                    "KV_DEVICE void decode(") == 2);
}

TEST_CASE("a removed wait of token-major heads is noticed") {
  Case test{"tbq3_0", "q8_0", 128, 4, 2, Layout::rows};
  test.token_heads = 8;
  // First the waits for copies, then the wait before a stage is filled again, then the waits before the sums of a block
  // and before its merge.
  CHECK(check_waits(test, "KV_DEVICE SharedAddress take_keys(", "KV_DEVICE void release(") == 2);
  CHECK(check_waits(test, "wait_phase(emptied(", "struct TileFeatures") == 1);
  CHECK(check_waits(test, "sync_block();  // stages and queries of all heads", "for_each_item<All>") == 2);
}

TEST_CASE("a removed wait of a team is noticed") {
  const Case test{"tbq3_0", "tbq4_0", 128, 8, 4, Layout::planar};
  CHECK(check_waits(test, "struct TeamRowMax<Plan, true>", "======== the plan", "sm_80") == 5);
}

TEST_CASE("a removed vote of a warpgroup, and a removed second buffer of probabilities, are noticed") {
  const Case test{"kv4", "tbq4_0", 128, 8, 4, Layout::planar};
  const auto context = open_context(DeviceKind::cpu, kOrder);
  std::vector<Planned> all = {planned(registry(), test, "sm_90a")};
  for (const auto& [what, instead] : {std::pair{"= any_of_team<Plan::kTeam>(needs_rescale)", "= any(needs_rescale)"},
                                      {"shown = kOtherBuffer - shown", "shown = 0"}}) {
    Text& kernel = all.emplace_back(all[0]).source.kernels.at(Role::decode).text;
    std::string text = kernel.str();
    const std::size_t at = text.find(what);
    REQUIRE_MESSAGE(at != std::string::npos, "the kernel no longer has ", what);
    kernel = text.replace(at, std::string(what).size(), instead);
  }
  warm_up(context, all, kCompileThreads);
  for (std::size_t i = 0; i < all.size(); ++i) {
    CAPTURE(i);
    Judge judge(context, all[i], int(kLengths.size()), kLengths[0]);
    const auto is_wrong = [&](int blocks) { return judge.is_wrong({0, kLengths, blocks, false}); };
    CHECK(std::any_of(std::begin(kBlocks), std::end(kBlocks), is_wrong) == (i > 0));
  }
}

TEST_CASE("the wait between two splits of a block: queries of the second overwrite rows of the first") {
  const auto context = open_context(DeviceKind::cpu, kOrder);
  const Planned right = planned(registry(), {"f16", "q4_0", 128, 4, 1, Layout::rows}, context->backend()->info().arch);
  Planned broken = right;
  std::string text = broken.source.kernels.at(Role::decode).text.str();
  const std::size_t at = text.find(kBetweenSplits);
  REQUIRE(at != std::string::npos);
  text.replace(at, std::string("sync_block()").size(), "");
  broken.source.kernels.at(Role::decode).text = text;
  const Caller::Shape shape{1, 257, 1};  // two heads, so two KV splits
  const auto is_wrong = [&](const Planned& one) {
    Caller caller(context, one, {1, kKvHeads, 257}, {2, 0});  // not aligned to 16 bytes
    return !caller.run(shape) || !(caller.error(shape) <= kMaxKernelError);
  };
  CHECK_FALSE(is_wrong(right));
  CHECK(is_wrong(broken));
}

}  // namespace
}  // namespace kvjit::test
