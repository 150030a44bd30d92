// generator/kernels/decode/integer_keys.cpp: which formats of K are multiplied as 8-bit integers, in which unit, and
// with which error.
// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "generator/kernels/decode/plan.hpp"
#include "tests/support/every_format.hpp"
#include "tests/support/packed_rows.hpp"
#include "tests/support/registry.hpp"

namespace kvjit {
namespace {

using test::registry;

// Plans the format as K, at the smallest head_dim that it fits.
SidePlan key_side(const std::string& name) {
  const auto head_dims = test::fitting(registry(), name, {64, 128, 256});
  REQUIRE_MESSAGE(!head_dims.empty(), name);
  const auto side = plan_side(*registry().format_for(name, head_dims.front(), {}), head_dims.front(), true, true, true);
  REQUIRE_MESSAGE(side, side.error().message);
  return *side;
}

// Returns the value of a stored code by its integers (templates/kernels/decode/unpack_int8.cuh), in units of the scale.
double value_of(const IntegerPlan& plan, int stored) {
  int y = 0, z = 0;
  if (plan.kind == IntegerKind::plain) {
    y = std::int8_t((stored << plan.slots.offset) ^ (plan.flips ? 0x80 : 0));
  } else {
    const auto byte = [&](int i) { return int(plan.table[std::size_t(i / 4)] >> 8 * (i % 4) & 0xff); };
    y = std::int8_t(byte(stored));
    z = plan.code_terms == 2 ? byte(16 + stored) : 0;
  }
  // The kernel subtracts a zero point and sum_factor together, so a code keeps its own value here.
  return plan.unit * (y + z / 256.0 + (plan.counts_from_zero ? 0 : plan.sum_factor));
}

struct Expected {
  IntegerKind kind;
  int code_terms;
  double sum_factor;
  double unit;  // 0: the largest entry is 127.99 units
};
constexpr double kTurbo2Step = 2 / (35.5 / double(0.039994f) + 118.5 / double(0.133462f));
constexpr Expected kTwoParts{IntegerKind::table8, 2, 0, 0};
// Formats that are not listed are multiplied in fp16: floats, 4-bit codebooks whose entries are multiples of no step,
// codebooks of 5 bits and more, vectors, several sections, scales of groups below 32, stored minima, lengths that only
// the codes give.
const std::map<std::string, Expected> kExpected = {
    // Uniform codes are integers as stored. Codes with an offset are shifted to the top bits of a byte.
    {"q4_0", {IntegerKind::plain, 1, 0, 0x1p-4}},
    {"q5_0", {IntegerKind::plain, 1, 0, 0x1p-3}},
    {"q8_0", {IntegerKind::plain, 1, 0, 1}},
    {"bee_q2_0s", {IntegerKind::plain, 1, 0, 0x1p-6}},
    {"bee_q3_0", {IntegerKind::plain, 1, 0, 0x1p-5}},
    {"ik_q6_0", {IntegerKind::plain, 1, 0, 0x1p-2}},
    {"ik_q6_0_cuda", {IntegerKind::plain, 1, 0, 0x1p-2}},
    {"ninfer_rk4", {IntegerKind::plain, 1, 0, 0x1p-4}},
    {"ninfer_rk8", {IntegerKind::plain, 1, 0, 1}},
    {"vllm_int8_per_token_head", {IntegerKind::plain, 1, 0, 1}},
    {"kv7", {IntegerKind::plain, 1, 0, 0x1p-1}},
    {"kv8", {IntegerKind::plain, 1, 0, 1}},
    // Codes that count from a zero point are moved by half their range.
    {"vllm_int4_per_token_head", {IntegerKind::plain, 1, -8, 1}},
    {"vllm_int4_per_token_head_bf16", {IntegerKind::plain, 1, -8, 1}},
    // Codebooks whose entries are multiples of a step.
    {"kv1", {IntegerKind::table8, 1, 0, 0x1p-1}},
    {"kv2", {IntegerKind::table8, 1, 0, 0x1p-7}},
    {"kv3", {IntegerKind::table8, 1, 0, 0x1p-6}},
    {"kv4", {IntegerKind::mirrored, 1, 0.5, 0x1p-6}},
    {"ggml_q1_0", {IntegerKind::table8, 1, 0, 1}},
    {"vllm_octave_3", {IntegerKind::table8, 1, 0, 0x1p-6}},
    {"vllm_octave_4", {IntegerKind::table16, 1, 0, 0x1p-6}},
    {"iq4_nl", {IntegerKind::table16, 1, 0, 1}},
    {"mxfp4", {IntegerKind::table16, 1, 0, 0x1p-1}},
    {"mxfp4_2over4", {IntegerKind::table16, 1, 0, 0x1p-1}},
    // The entries are near 35.5 and 118.5 steps.
    {"turbo2_qk128", {IntegerKind::table8, 1, 0.5, kTurbo2Step}},
    {"turbo2_qk32", {IntegerKind::table8, 1, 0.5, kTurbo2Step}},
    // Codebooks of up to 3 bits whose entries are multiples of no step.
    {"amesianx_tbq3_0", kTwoParts},
    {"amesianx_tbq3_1", kTwoParts},
    {"amesianx_tbq3_2", kTwoParts},
    {"iso3", kTwoParts},
    {"planar3", kTwoParts},
    {"tbq3_dense256_qsfirst_raw", kTwoParts},
    {"tbq3_dense_qsfirst_raw", kTwoParts},
    {"tbq3_wht_dfirst_corr", kTwoParts},
    {"tq3_0_s2", kTwoParts},
    {"tq3_0v", kTwoParts},
    {"turbo3_qk128", kTwoParts},
    {"turbo3_qk128_pr197", kTwoParts},
    {"turbo3_qk32", kTwoParts},
};

}  // namespace

TEST_CASE("which formats become integers, how many parts, and in which unit") {
  const auto names = test::format_names(registry());
  CHECK(names.size() == 105);
  for (const auto& [name, expected] : kExpected) CHECK_MESSAGE(std::count(names.begin(), names.end(), name) == 1, name);
  for (const std::string& name : names) {
    CAPTURE(name);
    const SidePlan side = key_side(name);
    const auto listed = kExpected.find(name);
    if (listed == kExpected.end()) {
      for (const SectionPlan& section : side.sections) CHECK(section.integers.kind == IntegerKind::none);
      continue;
    }
    const SectionPlan& section = side.sections[0];
    const IntegerPlan& integers = section.integers;
    const Expected& expected = listed->second;
    CHECK(int(integers.kind) == int(expected.kind));
    CHECK(integers.code_terms == expected.code_terms);
    CHECK(integers.sum_factor == expected.sum_factor);
    CHECK(integers.counts_from_zero == (expected.sum_factor < 0));
    CHECK(section.unit == integers.unit);
    double largest = 0;
    for (const double v : section.codes.values) largest = std::max(largest, std::fabs(v));
    CHECK(integers.unit == doctest::Approx(expected.unit == 0 ? largest / 127.99 : expected.unit).epsilon(1e-12));
  }
}

TEST_CASE("every code is its integer: exactly or nearly in one part, to 2^-15 of the largest in two") {
  int checked = 0;
  for (const std::string& name : test::format_names(registry())) {
    CAPTURE(name);
    const SectionPlan section = key_side(name).sections[0];
    if (section.integers.kind == IntegerKind::none) continue;
    ++checked;
    const int codes = 1 << section.codes.bits;
    double largest = 0, worst = 0;
    for (int code = 0; code < codes; ++code) {
      const double value = test::value_of(section.codes, code);
      largest = std::max(largest, std::fabs(value));
      worst = std::max(worst, std::fabs(value - value_of(section.integers, code)));
    }
    const bool is_near = name.starts_with("turbo2_qk");
    CHECK(worst <= (is_near ? 0.00015 : section.integers.code_terms == 1 ? 0 : 0x1p-15) * largest);
  }
  CHECK(checked == int(kExpected.size()));
}

TEST_CASE("codes with a minimum, a scale of a part of the run, or none of their own stay as they are") {
  const Format q4 = *registry().format_for("q4_0", 128, {});
  CHECK(plan_integers(q4, ScaleUse::by_group).kind == IntegerKind::plain);
  CHECK(plan_integers(q4, ScaleUse::none).kind == IntegerKind::plain);
  CHECK(plan_integers(q4, ScaleUse::by_value).kind == IntegerKind::none);
  CHECK(plan_integers(*registry().format_for("q4_1", 128, {}), ScaleUse::by_group).kind == IntegerKind::none);
  CHECK(plan_integers(*registry().format_for("f16", 128, {}), ScaleUse::none).kind == IntegerKind::none);
}

TEST_CASE("archs without integer products keep keys as halves") {
  const Format q8 = *registry().format_for("q8_0", 128, {});
  CHECK(plan_side(q8, 128, true, true, false)->sections[0].integers.kind == IntegerKind::none);
  for (const auto& [arch, is_there] : {std::pair{"sm_75", false}, {"sm_80", true}, {"sm_90a", true}, {"sm_121a", true}})
    CHECK_MESSAGE((*registry().require_arch(arch, {}))->has("mma_m16n8k32_s8") == is_there, std::string(arch));
}

}  // namespace kvjit
