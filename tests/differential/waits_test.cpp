// Waits of the decode kernel, taken out of the emitted text one by one: the CPU back-end must give another answer, or say why it gives
// none.
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <regex>

#include "tests/differential/caller.hpp"
#include "tests/differential/harness.hpp"

namespace kvjit::test {
namespace {

constexpr unsigned kCompileThreads = 2;
constexpr unsigned kOrder =
    7;  // of lanes: not that of their numbers, so that the first is not the one that all wait for

// Some tiles more than a block has warps, so that some warps are done before others; and a part of a tile, which is staged without copies.
const std::vector<int> kLengths = {450, 5};

// What the back-end cannot see, by what stands in the kernel.
constexpr const char* kUnseen[] = {
    // The last thing a lane does with a stage is a product of the whole warp, and to the back-end that is a barrier too.
    "sync_warp();  // every lane is done with the stage that is filled now",
    // By then every tile that was copied has been waited for: nothing is under way.
    "copy_wait<0>();",
};
// Of the parts of a block: what the one leaves in shared memory is read before the next fills it. Copies land too late to tell.
constexpr const char* kBetweenParts = "sync_block();  // shared memory is used anew";

const Registry& registry() {
  static const Registry loaded = must(Registry::load(embedded_files()));
  return loaded;
}

struct Wait {
  std::size_t at, size;
  std::string line;  // from the wait on: what it says it is for
  bool is_in_loop;   // of attend_part: from the first copies to the last tile
};

// Of everything between Q on its way in and the output on its way out, in the order of the text.
std::vector<Wait> waits_of(const std::string& text) {
  const auto find = [&](const char* what) {
    const std::size_t at = text.find(what);
    REQUIRE_MESSAGE(at != std::string::npos, "the kernel no longer has: ", std::string(what));
    return at;
  };
  const std::size_t begin = find("class QueryRows"), end = find("======== the plan");
  const std::size_t loop = find("KV_DEVICE void attend_part("), loop_end = find("KV_DEVICE void decode(");
  static const std::regex wait(R"((copy_wait<[^>]*>|sync_warp|sync_block)\(\);)");
  std::vector<Wait> all;
  for (std::sregex_iterator i(text.begin() + std::ptrdiff_t(begin), text.begin() + std::ptrdiff_t(end), wait), none;
       i != none; ++i) {
    const std::size_t at = begin + std::size_t(i->position());
    all.push_back(
        {at, std::size_t(i->length()), text.substr(at, text.find('\n', at) - at), at > loop && at < loop_end});
  }
  return all;
}

// Which of the waits a spec needs.
struct Needed {
  std::vector<Wait> waits;
  std::vector<bool> is_needed;
};
Needed needed_by(const Case& test) {
  const auto context = open_context(DeviceKind::cpu, kOrder);
  const Planned right = planned(registry(), test, context->backend()->facts().arch);
  Needed needed{waits_of(right.source.kernels.at(Role::attend).text), {}};
  std::vector<Planned> all = {right};
  for (const Wait& wait : needed.waits) {
    all.push_back(right);
    all.back().source.kernels.at(Role::attend).text.replace(wait.at, wait.size, ";");
  }
  warm_up(context, all, kCompileThreads);
  for (const Planned& one : all) {
    Judge judge(context, one, int(kLengths.size()), kLengths[0]);
    const auto is_wrong = [&](int blocks) { return judge.is_wrong({0, kLengths, blocks, false}); };
    needed.is_needed.push_back(is_wrong(1) || is_wrong(3));
  }
  CHECK_MESSAGE(!needed.is_needed.front(), test.name(), ": wrong with all its waits");
  needed.is_needed.erase(needed.is_needed.begin());
  return needed;
}

TEST_CASE("a wait that is taken out is noticed") {
  const Needed planar = needed_by({"q8_0", "tbq4_0", 128, 4, 1, Layout::planar}),
               rows = needed_by({"tbq3_0", "q8_0", 128, 4, 1, Layout::rows});
  REQUIRE(planar.waits.size() == rows.waits.size());
  CHECK(planar.waits.size() >= 12);
  std::size_t unseen = 0;
  for (std::size_t i = 0; i < planar.waits.size(); ++i) {
    const Wait& wait = planar.waits[i];
    REQUIRE(wait.line == rows.waits[i].line);
    const bool by_planar = planar.is_needed[i], by_rows = rows.is_needed[i];
    INFO("wait ", i, ": ", wait.line, ", noticed by planar ", by_planar, ", by rows ", by_rows);
    if (wait.line == kBetweenParts) continue;
    if (std::find(std::begin(kUnseen), std::end(kUnseen), wait.line) != std::end(kUnseen)) {
      ++unseen;
      CHECK_FALSE((by_planar || by_rows));  // else it can leave the list
    } else if (wait.is_in_loop) {
      CHECK((by_planar && by_rows));
    } else {
      CHECK((by_planar || by_rows));  // some stand where only Q or only the output is rotated, or Q held in registers
    }
  }
  CHECK(unseen == std::size(kUnseen));
}

TEST_CASE("the wait between the parts of a block, where rows are staged without copies") {
  const auto context = open_context(DeviceKind::cpu, kOrder);
  const Planned right =
      planned(registry(), {"q8_0", "q4_0", 128, 4, 1, Layout::rows}, context->backend()->facts().arch);
  Planned broken = right;
  std::string& text = broken.source.kernels.at(Role::attend).text;
  const std::size_t at = text.find(kBetweenParts);
  REQUIRE(at != std::string::npos);
  text.replace(at, std::string("sync_block()").size(), "");
  const Caller::Shape shape{1, 257, 1};  // two heads, so two parts
  const auto is_wrong = [&](const Planned& one) {
    Caller caller(context, one, {1, kKvHeads, 257}, {2, 0});  // off the alignment of straight copies
    return !caller.run(shape) || !(caller.error(shape) <= kMaxKernelError);
  };
  CHECK_FALSE(is_wrong(right));
  CHECK(is_wrong(broken));
}

}  // namespace
}  // namespace kvjit::test
