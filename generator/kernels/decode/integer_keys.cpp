// plan_integers: which formats of K are multiplied as 8-bit integers, and how their codes become those.
//
// Halves come from a table in shared memory, one look-up for two codes; integers from registers, one PRMT for four.
// With both on K, or both on V, one of the two pipes is the limit; K by the one and V by the other balances them
// (templates/README.md).
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cmath>

#include "generator/kernels/decode/plan.hpp"

namespace kvjit {
namespace {

std::uint32_t packed(const std::vector<int>& bytes, std::size_t first) {
  std::uint32_t word = 0;
  for (std::size_t i = 0; i < 4; ++i) word |= std::uint32_t(bytes[first + i] & 255) << 8 * i;
  return word;
}

// Integers as they are, or with the offset taken away by lifting the code to the top of a signed byte.
IntegerPlan plan_plain(const Section& s) {
  IntegerPlan plan;
  const bool is_centred = s.bits <= 8 && s.offset == 1 << (s.bits - 1);
  if (!is_centred && (s.offset != 0 || s.bits > 7 || s.twos_complement)) return plan;
  plan.kind = IntegerKind::plain;
  plan.slots.offset = is_centred ? 8 - s.bits : 0;
  plan.flips = is_centred && !s.twos_complement;
  plan.unit = std::ldexp(1, -plan.slots.offset);
  return plan;
}

// A unit, and integers n or n + 1/2 of it, that meet every entry of a short codebook better than halves may: to kNear
// of itself.
constexpr double kNear = 0.00015;
struct Steps {
  double unit = 0;
  bool has_half = false;
};
Steps nearest_steps(const Section& s, double largest) {
  for (int twice = 255; twice > 0 && s.bits <= 3; --twice) {
    const double unit = largest * 2 / twice, half = twice % 2 / 2.0;
    double least = 1e300, most = 0;  // of integers over entries
    for (const double v : s.values) {
      const double ratio = (std::round(v / unit - half) + half) * unit / v;
      least = std::min(least, ratio), most = std::max(most, ratio);
    }
    if (most - least <= 2 * kNear) return {unit * 2 / (most + least), half > 0};
  }
  return {};
}

IntegerPlan plan_table(const Section& s) {
  IntegerPlan plan;
  plan.slots.bits = 4;
  const std::size_t count = s.values.size();
  double largest = 0;
  for (const double v : s.values) largest = std::max(largest, std::fabs(v));
  const double step = int8_step(s);
  std::vector<int> first(16), second(16);
  if (step > 0) {
    plan.unit = step;
    plan.has_half = s.values[0] / step != std::floor(s.values[0] / step);
    // Halves are added by way of the sum of Q; up to eight entries need them only where twice as many steps do not fit
    // a byte.
    if (plan.has_half && count <= 8 && largest / step * 2 <= 127) plan.unit = step / 2, plan.has_half = false;
    for (std::size_t i = 0; i < count; ++i) first[i] = int(std::floor(s.values[i] / plan.unit));
  } else if (const Steps steps = nearest_steps(s, largest); steps.unit > 0) {
    plan.unit = steps.unit, plan.has_half = steps.has_half;
    const double half = steps.has_half ? 0.5 : 0;
    for (std::size_t i = 0; i < count; ++i) first[i] = int(std::lround(s.values[i] / plan.unit - half));
  } else {
    if (s.bits > 3) return {};  // two look-ups of sixteen cost more than one in shared memory
    plan.code_parts = 2;
    plan.unit = largest / 127.99;
    for (std::size_t i = 0; i < count; ++i) {
      const int n = int(std::lround(s.values[i] / plan.unit * 256));
      first[i] = n >> 8, second[i] = n & 255;
    }
  }
  bool is_mirrored = plan.has_half && count == 16;
  for (std::size_t i = 0; i < count / 2; ++i) is_mirrored = is_mirrored && s.values[i] == -s.values[i + count / 2];
  plan.kind = count <= 8 ? IntegerKind::table8 : is_mirrored ? IntegerKind::mirrored : IntegerKind::table16;
  for (const auto* bytes : {&first, &second})
    for (std::size_t i = 0; i < 16; i += 4) plan.table.push_back(packed(*bytes, i));
  return plan;
}

}  // namespace

IntegerPlan plan_integers(const Format& format, ScaleUse use) {
  const Section& s = format.codes();
  if (format.sections.size() != 1 || format.stored_mask > 0 || format.scale.renormalise || format.has_minimum() ||
      use == ScaleUse::by_value || s.kind == CodeKind::plain)
    return {};
  if (s.kind == CodeKind::uniform) return plan_plain(s);
  return s.bits <= 4 ? plan_table(s) : IntegerPlan{};
}

}  // namespace kvjit
