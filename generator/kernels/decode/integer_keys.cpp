// plan_integers: which formats of K are multiplied as 8-bit integers, and how their codes become integers.
//
// fp16 numbers come from a table in shared memory, one look-up for two codes. Integers come from registers, one PRMT
// for four codes. If K and V both took the same way, its pipe would be the limit; with K as integers and V as fp16 both
// pipes have work (templates/kernels/decode/README.md).
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cmath>

#include "generator/kernels/decode/plan.hpp"

namespace kvjit {
namespace {

// Bytes first .. first + 3 as a little-endian word.
std::uint32_t packed(const std::vector<int>& bytes, std::size_t first) {
  std::uint32_t word = 0;
  for (std::size_t i = 0; i < 4; ++i) word |= std::uint32_t(bytes[first + i] & 255) << 8 * i;
  return word;
}

// Codes that are integers. An offset of half the range disappears: the code is shifted to the top of its byte, and the
// byte's top bit is flipped, which gives a signed byte.
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

// Codes that count from a zero point. Half the range is subtracted from each, and the rest of the zero point is added
// to the sum of the products (templates/kernels/decode/rare/zero_keys.cuh).
IntegerPlan plan_counted(const Section& s) {
  IntegerPlan plan = plan_plain(s);
  if (plan.kind == IntegerKind::none || plan.slots.offset != 0) return {};
  plan.counts_from_zero = true;
  plan.sum_factor = -std::ldexp(1, s.bits - 1);
  return plan;
}

// A unit such that every entry of a codebook of up to 3 bits is n or n + 1/2 units, to a relative error of kNear. As
// fp16 an entry may be off by 2^-12, which is 0.00024.
constexpr double kNear = 0.00015;
struct Steps {
  double unit = 0;
  bool has_half = false;
};
Steps nearest_steps(const Section& s, double largest) {
  for (int twice = 255; twice > 0 && s.bits <= 3; --twice) {
    const double unit = largest * 2 / twice, half = twice % 2 / 2.0;
    double least = 1e300, most = 0;  // of the ratios of rounded entries to entries
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
    plan.sum_factor = s.values[0] / step != std::floor(s.values[0] / step) ? 0.5 : 0;
    // The kernel adds the 1/2 through the sum of Q. Up to eight entries do without it, if half the unit fits a byte.
    if (plan.sum_factor > 0 && count <= 8 && largest / step * 2 <= 127) plan.unit = step / 2, plan.sum_factor = 0;
    for (std::size_t i = 0; i < count; ++i) first[i] = int(std::floor(s.values[i] / plan.unit));
  } else if (const Steps steps = nearest_steps(s, largest); steps.unit > 0) {
    plan.unit = steps.unit, plan.sum_factor = steps.has_half ? 0.5 : 0;
    for (std::size_t i = 0; i < count; ++i) first[i] = int(std::lround(s.values[i] / plan.unit - plan.sum_factor));
  } else {
    if (s.bits > 3) return {};  // two permuted bytes of 16 entries cost more than one look-up in shared memory
    plan.code_terms = 2;
    plan.unit = largest / 127.99;
    for (std::size_t i = 0; i < count; ++i) {
      const int n = int(std::lround(s.values[i] / plan.unit * 256));
      first[i] = n >> 8, second[i] = n & 255;
    }
  }
  bool is_mirrored = plan.sum_factor > 0 && count == 16;
  for (std::size_t i = 0; i < count / 2; ++i) is_mirrored = is_mirrored && s.values[i] == -s.values[i + count / 2];
  plan.kind = count <= 8 ? IntegerKind::table8 : is_mirrored ? IntegerKind::mirrored : IntegerKind::table16;
  for (const auto* bytes : {&first, &second})
    for (std::size_t i = 0; i < 16; i += 4) plan.table.push_back(packed(*bytes, i));
  return plan;
}

}  // namespace

IntegerPlan plan_integers(const Format& format, ScaleUse use) {
  const Section& s = format.codes();
  if (format.has_segments() || format.sections.size() != 1 || format.stored_mask > 0 || format.scale.renormalise ||
      format.stores_minimum() || use == ScaleUse::by_value || s.kind == CodeKind::plain || s.is_vector())
    return {};
  if (format.has_zero_point()) return s.kind == CodeKind::uniform ? plan_counted(s) : IntegerPlan{};
  if (s.kind == CodeKind::uniform) return plan_plain(s);
  return s.bits <= 4 ? plan_table(s) : IntegerPlan{};
}

}  // namespace kvjit
