// generator/kernels/decode/shared_layout.cpp: places of staged rows in shared memory, and how their lane reads are
// loaded.
// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>

#include "generator/kernels/decode/plan.hpp"
#include "generator/resolve/problem.hpp"
#include "tests/support/every_format.hpp"
#include "tests/support/registry.hpp"

namespace kvjit {
namespace {

using test::registry;

SidePlan side_of(const char* format, int head_dim, bool is_key) {
  const auto side = plan_side(*registry().format_for(format, head_dim, {}), head_dim, false, is_key, is_key);
  REQUIRE_MESSAGE(side, render(side.error()));
  return *side;
}

// Returns where the loads of a plane may end, in bytes from the beginning of the staged row's slot.
int end_of_loads(const SidePlan& side, const LaneReads& reads, const FieldRead& plane) {
  int end = 0;
  for (int skew = 0; skew < side.slot_align; skew += 2)
    for (int group = 0; group < reads.groups; ++group)
      for (int r = 0; r < reads.reads_per_group; ++r)
        for (int row_lane = 0; row_lane < reads.lanes_per_row; ++row_lane) {
          const int block = group * reads.blocks + row_lane / reads.lanes_per_block;
          const int bits = plane.loads_whole_field ? 0 : row_lane % reads.lanes_per_block * plane.lane_bits;
          const int at = skew + block * side.block_stride + plane.at + r * plane.read_bits / 8 + bits / 8;
          const int pieces = plane.is_unaligned ? (plane.load_bytes + 2 * (plane.unit - 1)) / plane.unit
                                                : (plane.load_bytes + plane.unit - 1) / plane.unit;
          end = std::max(end, (plane.is_unaligned ? at / plane.unit * plane.unit : at) + pieces * plane.unit);
        }
  return end;
}

}  // namespace

// A joined lane read is half of a word whose other half belongs to another token, so its load must have no other bytes.
TEST_CASE("joined lane reads are loaded without what lies behind them") {
  int joined = 0, odd = 0;
  for (const std::string& name : test::format_names(registry()))
    for (const int head_dim : test::fitting(registry(), name, {64, 128, 256, 512}))
      for (const bool is_planar : {false, true})
        for (const int value_share : {2, 4, 8}) {
          const auto planned =
              plan_side(*registry().format_for(name, head_dim, {}), head_dim, is_planar, false, false, value_share);
          if (!planned) continue;
          INFO(name, ", head_dim ", head_dim, ", ", value_share, " warps");
          for (const SectionPlan& section : planned->sections) {
            if (!section.reads.is_joined) continue;
            ++joined;
            odd += planned->is_misaligned && planned->block_stride % 2 != 0;
            CHECK_FALSE(section.reads.planes[0].is_unaligned);
            CHECK(section.reads.planes[0].load_bytes == 2);
            CHECK(section.reads.planes[0].unit <= 2);
          }
        }
  CHECK(joined > 20);
  CHECK(odd > 0);  // mxfp4: blocks of 17 bytes
}

TEST_CASE("rows of any size are loaded within their slots and the slack behind the last") {
  constexpr int kSlack = 16;
  int skewed = 0, windows = 0;
  for (const std::string& name : test::format_names(registry()))
    for (const int head_dim : test::fitting(registry(), name, {64, 128, 256, 512}))
      for (const bool is_key : {true, false}) {
        const auto planned = plan_side(*registry().format_for(name, head_dim, {}), head_dim, false, is_key, is_key);
        if (!planned) continue;
        const SidePlan& side = *planned;
        INFO(name, is_key ? " as K" : " as V", ", head_dim ", head_dim);
        CHECK(side.is_misaligned == (side.row_bytes % 16 != 0));
        CHECK(side.pitch % (side.is_misaligned ? side.slot_align : 16) == 0);
        if (!side.is_misaligned) {
          CHECK_FALSE(side.has_even_odd_order);
          continue;
        }
        ++skewed;
        CHECK(side.pitch >= side.slot_align - 2 + side.row_bytes);
        CHECK(side.swizzle == 0);
        for (const SectionPlan& section : side.sections)
          for (const FieldRead& plane : section.reads.planes) {
            windows += plane.is_unaligned;
            CHECK(end_of_loads(side, section.reads, plane) <= side.pitch + kSlack);
          }
      }
  CHECK(skewed > 100);
  CHECK(windows > 100);
}

TEST_CASE(
    "rows of a 4-bit format are read through windows without a bank conflict, and cost no more memory than their "
    "sectors") {
  const SidePlan k = side_of("tbq4_0", 128, true), v = side_of("tbq4_0", 128, false);
  for (const SidePlan* side : {&k, &v}) {
    const bool is_key = side == &k;
    CHECK(side->pitch == 96);
    CHECK(side->has_even_odd_order == !is_key);  // otherwise rows of one load of V fall into the same banks
    const LaneReads& reads = side->sections[0].reads;
    CHECK(reads.planes[0].is_unaligned);
    CHECK(reads.planes[0].unit == 8);
    CHECK(reads.bank_cost == (is_key ? 4 : 2));  // bytes a load: 512 and 256
  }
  // Four bytes at an even address are two loads of two bytes, which need no shift.
  CHECK_FALSE(side_of("q4_0", 128, true).sections[0].reads.planes[0].is_unaligned);
  CHECK(side_of("q4_0", 128, true).sections[0].reads.planes[0].unit == 2);
  CHECK(side_of("q8_0", 128, true).sections[0].reads.planes[0].is_unaligned);
}

TEST_CASE(
    "rows keep their place in a sector; those of pages in a chunk, and lines in the L1 where tables leave it room") {
  const auto plan_of = [](const char* format, const char* layout, const char* arch = "sm_90a") {
    const auto specs = parse_specs(
        fmt::format("[k]\nformat=\"{0}\"\n[v]\nformat=\"{0}\"\n[cache]\nlayout=\"{1}\"", format, layout), "test.toml");
    REQUIRE(specs);
    const auto plan = plan_decode(*resolve((*specs)[0], registry(), arch));
    REQUIRE(plan);
    return *plan;
  };
  constexpr const char* kPages = "paged\"\npage_layout=\"rows";
  for (const char* format : {"tbq4_0", "kv4", "q8_0", "q4_0", "tbq3_0"}) {
    INFO(format);
    const DecodePlan rows = plan_of(format, "rows"), planar = plan_of(format, "planar"),
                     pages = plan_of(format, kPages);
    const bool would_meet = format == std::string("q4_0") || format == std::string("tbq3_0");  // bank conflicts
    CHECK(rows.k.slot_align == (would_meet ? 16 : 32));
    CHECK(rows.v.slot_align == 32);
    CHECK(pages.k.slot_align == 16);
    CHECK(pages.v.slot_align == 16);
    CHECK(pages.k.caches_in_l1);
    CHECK(pages.v.caches_in_l1);
    CHECK(pages.shared_bytes <= 0.6 * pages.arch.shared_bytes_per_block);
    CHECK(rows.k.caches_in_l1 == (rows.k.slot_align == 16));
    CHECK_FALSE(rows.v.caches_in_l1);
    CHECK_FALSE(planar.k.caches_in_l1);
  }
  CHECK_FALSE(plan_of("f16", kPages).k.caches_in_l1);
  const DecodePlan full = plan_of("iq4_nl", kPages, "sm_75");  // the tables take most of the 64 KiB of shared memory
  CHECK(full.k.is_misaligned);
  CHECK_FALSE(full.k.caches_in_l1);
}

}  // namespace kvjit
