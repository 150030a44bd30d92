// Mutation test of prefill's synchronization: waits, arrivals and phases are broken in the emitted text one by one. The
// CPU back-end must give another answer or say why it gives none. It cannot notice that the wait of a warp ahead of its
// arrival at a full stage (Stages::fill) is missing, because all lanes of a warp run before those that wait for it. Nor
// does it notice that V is filled or read without a wait: a warp of the producer runs until it waits, so it fills V
// right after K, and consumers run when both are there. A wait for the wrong phase stands for a missing one when V is
// read.
// SPDX-License-Identifier: MIT
#include <fmt/ranges.h>

#include <algorithm>
#include <string>

#include "tests/differential/prefill/rows.hpp"

namespace kvjit::test {
namespace {

constexpr unsigned kCompileThreads = 2;
// Seeds of the orders in which lanes run. A broken kernel must be noticed in one of them, and a whole one is right in
// all. No order is that of lane numbers, so that lane 0 is not the first lane that arrives at a wait.
constexpr unsigned kOrders[] = {7, 1, 2, 14};

// A change of the text: the n-th place of `what`, counted from 1, becomes `instead`.
struct Mutation {
  std::string what;
  int place;
  std::string instead;
};

void check_mutations(const Case& test, const std::vector<Mutation>& listed) {
  const std::vector<Mutation> mutations = every_nth(listed, 3);
  std::vector<Planned> all = {planned(registry(), test, "sm_90a")};
  for (const Mutation& mutation : mutations) {
    ProgramSource& source = all.emplace_back(all[0]).source;
    Text& kernel = (source.buckets.empty() ? source : source.buckets.back()).kernels.at(Role::prefill).text;
    std::string text = kernel.str();
    std::size_t at = text.find(mutation.what);
    for (int i = 1; i < mutation.place && at != std::string::npos; ++i) at = text.find(mutation.what, at + 1);
    REQUIRE_MESSAGE(at != std::string::npos, "the kernel no longer has ", mutation.what);
    kernel = text.replace(at, mutation.what.size(), mutation.instead);
  }
  // Five tiles, so that both stages are filled more than once, and a second work tile, or split, for each block.
  const std::vector<int> lengths = {600, 5};
  std::vector<std::string> names = {"nothing"};  // of what is not noticed so far
  for (const Mutation& mutation : mutations) names.push_back(fmt::format("{} -> {}", mutation.what, mutation.instead));
  for (const unsigned order : kOrders) {
    const auto context = open_context(DeviceKind::cpu, order);
    warm_up(context, all, kCompileThreads);
    for (std::size_t i = all.size(); i-- > 0;) {
      Judge judge(context, all[i], int(lengths.size()), lengths[0]);
      if (!judge.is_wrong(prefill_call(lengths, 1)) && !judge.is_wrong(prefill_call(lengths, 3))) continue;
      CHECK_MESSAGE(i > 0, test.name(), " is wrong in order ", order);
      all.erase(all.begin() + std::ptrdiff_t(i)), names.erase(names.begin() + std::ptrdiff_t(i));
    }
    if (all.size() == 1) return;
  }
  CHECK_MESSAGE(false, test.name(),
                ", not noticed: ", fmt::format("{}", fmt::join(names.begin() + 1, names.end(), "; ")));
}

TEST_CASE("a removed wait, a phase too early, an early release and a tile too few with a mask are noticed") {
  const std::string full = "Stages::parity(n));";
  check_mutations(
      {"kv4", "tbq4_0", 128, 4, 70, Layout::planar, true},
      {{"if (part % kParts == 0) wait_phase", 1, "if (kIsV && part % kParts == 0) wait_phase"},
       {"if (part % kParts == 0) wait_phase", 1, "if (!kIsV && part % kParts == 0) wait_phase"},
       {"wait_phase(Stages::full(b > 0, n), " + full, 1, "if (b > 0) wait_phase(Stages::full(true, n), " + full},
       {"Stages::full(b > 0, n), Stages::parity(n)", 1, "Stages::full(b > 0, n), Stages::parity(n) ^ 1"},
       {"copy_wait<2 * kRing - 1>();", 2, "copy_wait<2 * kRing + 1>();"},
       {"copy_wait<2 * kRing - 1>();", 3, "copy_wait<2 * kRing + 1>();"},
       {"if (b == kBlocks - 1) Stages::leave(false, n);", 2, "if (b == 0) Stages::leave(false, n);"},
       {"if (b == 0 && !is_first) Stages::leave(true, n - 1);", 1, "if (b == 1) Stages::leave(true, n);"},
       {"sync_team<4>();  // all warps have left the place of the queries", 1, ""},
       {"publish_operands();\n    sync_team<4>();", 1, "publish_operands();"},
       {"work.end_whole_tile = range_.end(", 1, "work.end_whole_tile = 1 + range_.end("},
       {"n % kStages * (Plan::kTokens * 4)", 1, "0"}});
}

TEST_CASE("of one block a consumer, a removed wait, an early release and a phase too early are noticed") {
  check_mutations({"kv4", "kv3", 128, 4, 30, Layout::planar, true},
                  {{"wait_phase(Stages::full(false, n), Stages::parity(n));", 1, ";"},
                   {"wait_phase(Stages::full(true, n), Stages::parity(n));", 1,
                    "wait_phase(Stages::full(true, n), Stages::parity(n) ^ 1);"},
                   {"if (part % kParts == 0) wait_phase", 1, "if (kIsV && part % kParts == 0) wait_phase"},
                   {"copy_wait<2 * kRing - 1>();", 2, "copy_wait<2 * kRing + 1>();"}});
}

TEST_CASE("splits that overlap, miss tiles, are merged too early or with wrong weights are noticed") {
  check_mutations({"kv4", "kv3", 128, 4, 60, Layout::planar, true},
                  {{"first_tile + tiles * item.split / splits", 1, "first_tile"},
                   {"first_tile + tiles * (item.split + 1) / splits", 1,
                    "first_tile + tiles * (item.split + 1) / splits - item.split"},
                   {"& ((1u << kBits) - 1)) + 1 < parts", 1, "& ((1u << kBits) - 1)) > 0"},
                   {"exp2_fast(float_of(stored[h]) - softmax.reference_max[h])", 1, "1.f"},
                   {"if (item.split >= splits) return true;", 1, ""}});
}

TEST_CASE("of tiles in two parts, a removed wait, an early announcement and places of another part are noticed") {
  // Wide sides, and values that are cleared, have barriers of their own there.
  check_mutations({"fp8_e4m3", "kv4", 128, 4, 70, Layout::rows, false},
                  {{"    else\n      sync_warp();", 1, ""},
                   {"if (part % kParts == kParts - 1)", 1, "if (part % kParts == 0)"},
                   {"(part % kParts * kWarps + warp()) * kTile", 1, "warp() * kTile"}});
}

TEST_CASE("of one stage of operands, a removed wait and an early release are noticed") {
  check_mutations({"kv4", "q4_0", 256, 4, 40, Layout::planar, true},
                  {{"wait_phase(Stages::full(true, n), Stages::parity(n));", 1,
                    "wait_phase(Stages::full(true, n), Stages::parity(n) ^ 1);"},
                   {"wait_phase(Stages::full(false, n), Stages::parity(n));", 1, ";"},
                   {"if (part % kParts == 0) wait_phase", 1, "if (kIsV && part % kParts == 0) wait_phase"},
                   {"    sync_warp();\n    KV_NO_UNROLL\n    for (int i = 0; i < kRows; i += kAtOnce) {", 1,
                    "    KV_NO_UNROLL\n    for (int i = 0; i < kRows; i += kAtOnce) {"},
                   {"pass < kPasses; ++pass) {\n    sync_warp();", 1, "pass < kPasses; ++pass) {"}});
}

TEST_CASE("of one stage of operands and tiles in parts, waits for copies that came too late are noticed") {
  check_mutations({"bf16", "q4_0", 256, 4, 40, Layout::rows, true},
                  {{"copy_wait<2 * kRing - 1>();", 1, "copy_wait<2 * kRing + 1>();"},
                   {"copy_wait<kRing - 1>();", 1, "copy_wait<2 * kRing + 1>();"},
                   {"wait(part);\n          v.take", 1, "v.take"}});
}

TEST_CASE("products that nothing waits for, and operands that are left too early, are noticed") {
  const std::string kWaitForValues =
      "wgmma_wait<0>();\n            settle_sums(before);\n            keep_words(p);\n          }\n";
  const std::string kMultiplyKeys =
      "          multiply_keys<Plan::kKeyDim / 16>(s, q + b * kQueryBlockBytes<Plan>, "
      "uniform(Stages::operand(false, n)));\n";
  const std::string kLeaveValues = "          if (b == 0 && !is_first) Stages::leave(true, n - 1);\n";
  check_mutations(
      {"f16", "f16", 128, 4, 70, Layout::planar, true},
      {{"  wgmma_wait<1>();\n  pass_tensor_order(group);\n  wgmma_wait<0>();", 1, "  pass_tensor_order(group);"},
       {"  wgmma_commit();\n}\ntemplate <int kSteps>", 1, "}\ntemplate <int kSteps>"},
       {"wgmma_wait<0>();\n        settle_sums(o[kBlocks - 1]);", 1, ""}});
  // The producer fills the stage again, with values of the next tile.
  const std::string kAwaitNext =
      "if (tile + 1 < work.end_tile) wait_phase(Stages::full(true, n + 1), Stages::parity(n + 1));";
  check_mutations({"kv4", "kv4", 128, 4, 70, Layout::planar, true},
                  {{kWaitForValues + kMultiplyKeys + kLeaveValues, 1,
                    "}\n" + kMultiplyKeys + kLeaveValues + kAwaitNext + "wgmma_wait<0>();"}});
}

TEST_CASE("of work tiles that one warp posts, a round that is never left and a wait for another phase are noticed") {
  // Eight places of the list and more, so that each slot is posted twice.
  check_mutations({"kv4", "kv3", 128, 4, 150, Layout::planar, true},
                  {{"works.leave(round);", 1, ";"},
                   {"works.leave(round);", 3, ";"},
                   {"Base::phase(round) ^ 1);", 1, "Base::phase(round));"}});
}

TEST_CASE("of heads of 576 and 512 dimensions, removed meetings, early releases and phases too early are noticed") {
  check_mutations(
      {"f16", "f16", 576, 4, 40, Layout::planar, true, 512},
      {{"wait_phase(Stages::full(false, n), Stages::parity(n));\n      wgmma_begin", 1, "wgmma_begin"},
       {"wait_phase(Stages::full(true, n), Stages::parity(n));\n      wgmma_begin", 1,
        "wait_phase(Stages::full(true, n), Stages::parity(n) ^ 1);\n      wgmma_begin"},
       {"wgmma_wait<0>();\n      settle_sums(s);\n      Stages::leave(false, n);", 1, "Stages::leave(false, n);"},
       {"wgmma_wait<0>();\n      settle_sums(o[0]);", 1, ""},
       {"Exchange::meet(0, meetings);\n      KV_UNROLL", 1, "KV_UNROLL"},
       {"Exchange::meet(1, meetings);\n      wait_phase", 1, "wait_phase"},
       {"Exchange::meet(0, meetings);  // both have left the output of the work tile before", 1, ""},
       {"Exchange::meet(1, meetings++);", 1, "meetings++;"},
       {"Exchange::meet(0, meetings);\n    const SharedAddress sums", 1, "const SharedAddress sums"},
       {"Exchange::meet(1, meetings);\n    KV_UNROLL", 1, "KV_UNROLL"}});
}

TEST_CASE("of rows that are only copied, a removed wait and an early announcement are noticed") {
  check_mutations({"f16", "f16", 128, 4, 70, Layout::planar, true},
                  {{"wait_phase(Stages<Plan>::empty(is_v, n), Stages<Plan>::parity(n) ^ 1);", 1, ";"},
                   {"    copy_wait<1>();\n    if (is_v)", 1, "    if (is_v)"},
                   {"    copy_wait<0>();\n    if (Plan::kStages > 1 && work.end_tile", 1,
                    "    if (Plan::kStages > 1 && work.end_tile"}});
}

TEST_CASE("of one stage of rows that are only copied, a removed wait and an early announcement are noticed") {
  check_mutations({"f16", "f16", 256, 4, 40, Layout::planar, true},
                  {{"wait_phase(Stages<Plan>::empty(is_v, n), Stages<Plan>::parity(n) ^ 1);", 1, ";"},
                   {"copy_wait<0>();\n      return", 1, "return"}});
}

}  // namespace
}  // namespace kvjit::test
