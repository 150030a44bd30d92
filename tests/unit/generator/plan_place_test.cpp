// generator/plan_place.cpp: where staged rows stand, how their runs are loaded, which are taken as they lie.
// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>

#include "generator/plan.hpp"
#include "generator/problem.hpp"
#include "tests/support/every_format.hpp"

namespace kvjit {
namespace {

const Registry& registry() {
  static const Registry loaded = *Registry::load(embedded_files());
  return loaded;
}

SidePlan side_of(const char* format, int head_dim, bool is_key) {
  const auto side = plan_side(*registry().format_for(format, head_dim, {}), head_dim, false, is_key, is_key);
  REQUIRE_MESSAGE(side, render(side.error()));
  return *side;
}

// Where the loads of a plane may end, in bytes from the beginning of the row's slot.
int end_of_loads(const SidePlan& side, const RunPlan& run, const PlaneRun& plane) {
  int end = 0;
  for (int skew = 0; skew < 16; skew += 2)
    for (int group = 0; group < run.groups; ++group)
      for (int r = 0; r < run.runs; ++r)
        for (int part = 0; part < run.parts; ++part) {
          const int block = group * run.blocks + part / run.parts_per_block;
          const int bits = plane.is_whole ? 0 : part % run.parts_per_block * plane.part_bits;
          const int at = skew + block * side.block_stride + plane.at + r * plane.run_bits / 8 + bits / 8;
          const int pieces = plane.is_window ? (plane.load_bytes + 2 * (plane.unit - 1)) / plane.unit
                                             : (plane.load_bytes + plane.unit - 1) / plane.unit;
          end = std::max(end, (plane.is_window ? at / plane.unit * plane.unit : at) + pieces * plane.unit);
        }
  return end;
}

}  // namespace

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
        CHECK(side.is_skewed == (side.row_bytes % 16 != 0));
        CHECK(side.pitch % 16 == 0);
        if (!side.is_skewed) {
          CHECK(side.ring.bytes == 0);
          CHECK_FALSE(side.is_dealt);
          continue;
        }
        ++skewed;
        CHECK(side.pitch >= 14 + side.row_bytes);
        CHECK(side.swizzle == 0);
        for (const SectionPlan& section : side.sections)
          for (const PlaneRun& plane : section.run.planes) {
            windows += plane.is_window;
            CHECK(end_of_loads(side, section.run, plane) <= side.pitch + kSlack);
          }
      }
  CHECK(skewed > 100);
  CHECK(windows > 100);
}

TEST_CASE("runs of four bits are taken as they lie; what has no rule to turn by, or many masks to find, is realigned") {
  const SidePlan k = side_of("tbq4_0", 128, true), v = side_of("tbq4_0", 128, false);
  CHECK(k.ring.bytes == 16);
  CHECK(k.ring.values == 32);
  CHECK(k.ring.byte_values == 2);
  CHECK(v.ring.bytes == 8);
  CHECK(v.ring.values == 16);
  CHECK(k.pitch == 80);
  CHECK(k.is_dealt);  // without it two rows of a load meet in the same banks
  CHECK(v.pitch == 80);
  CHECK_FALSE(v.is_dealt);
  for (const SidePlan* side : {&k, &v}) {
    CHECK(side->sections[0].run.planes[0].is_window);
    CHECK(side->sections[0].run.planes[0].unit == side->ring.bytes);
    CHECK(side->sections[0].run.bank_cost == (side == &k ? 4 : 2));  // 512 and 256 bytes: no conflict
  }
  CHECK(side_of("kv8", 128, false).ring.byte_values == 1);
  for (const char* format : {"tbq3_0", "q4_0", "q8_0", "turbo3_qk128"}) {
    INFO(format);
    CHECK(side_of(format, 128, true).ring.bytes == 0);
  }
  CHECK(side_of("q8_0", 128, true).sections[0].run.planes[0].is_window);
}

TEST_CASE("turned by a byte, every element has the place of the one that the rule says") {
  int rings = 0;
  for (const std::string& name : test::format_names(registry()))
    for (const int head_dim : test::fitting(registry(), name, {64, 128, 256}))
      for (const bool is_key : {true, false}) {
        const auto planned = plan_side(*registry().format_for(name, head_dim, {}), head_dim, false, is_key, is_key);
        if (!planned || planned->ring.bytes == 0) continue;
        ++rings;
        INFO(name, is_key ? " as K" : " as V", ", head_dim ", head_dim);
        const RunPlan& run = planned->sections[0].run;
        const RingPlan& ring = planned->ring;
        const int per_byte = 8 / planned->sections[0].codes.bits;
        CHECK(run.codes == ring.bytes * per_byte);
        int wrong = 0;
        for (std::size_t first = 0; first < run.elements.size(); first += std::size_t(run.codes))
          for (int code = 0; code < run.codes; ++code) {
            const int i = run.elements[first + std::size_t(code)],
                      next = run.elements[first + std::size_t((code + per_byte) % run.codes)];
            wrong += next != i / ring.values * ring.values + (i + ring.byte_values) % ring.values;
          }
        CHECK(wrong == 0);
      }
  CHECK(rings > 20);
}

TEST_CASE("a merge of its own does not see where rows begin: V is realigned then") {
  for (const bool is_fused : {true, false}) {
    const auto specs = parse_specs(
        fmt::format("[k]\nformat=\"tbq4_0\"\n[v]\nformat=\"tbq4_0\"\n[attention]\nfuse={}\n[cache]\nlayout=\"rows\"",
                    is_fused),
        "test.toml");
    REQUIRE(specs);
    const auto plan = plan_decode(*resolve((*specs)[0], registry(), "sm_90a"));
    REQUIRE(plan);
    CHECK(plan->k.ring.bytes == 16);
    CHECK(plan->v.ring.bytes == (is_fused ? 8 : 0));
  }
}

}  // namespace kvjit
