// plan_side: one side of the decode family: the staged row, the reads of its sections, how scales meet codes.
// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "generator/minifloat.hpp"
#include "generator/plan.hpp"

namespace kvjit {
namespace {

int round_up(int v, int to) { return (v + to - 1) / to * to; }

int power_of_two_in(int v, int most) {  // the largest power of two <= most that divides v
  int unit = most;
  while (unit > 1 && v % unit != 0) unit /= 2;
  return unit;
}

// Addresses of the 32 lanes for one load of a run: K reads rows g = lane / 4 (part lane % 4), V rows 2 (lane
// % 4) (part lane / 4).
std::vector<int> lane_addresses(const SidePlan& side, bool is_key, int pitch, int swizzle) {
  const RunPlan& run = side.sections[0].run;
  std::vector<int> addresses(32);
  for (int lane = 0; lane < 32; ++lane) {
    const int g = lane / 4, c = lane % 4, row = is_key ? g : 2 * c, part = is_key ? c : g;
    const int at = run.planes[0].at + row * pitch + part / run.parts_per_block * side.block_stride +
                   part % run.parts_per_block * run.planes[0].part_bits / 8;
    addresses[std::size_t(lane)] = swizzle > 0 ? at ^ (at >> (swizzle + 4) & 3) << 5 : at;
  }
  return addresses;
}

// The widest load that every address of a plane's runs allows.
int widest_load(const SidePlan& side, const RunPlan& run, const PlaneRun& plane, int pitch) {
  int unit = power_of_two_in(pitch, side.is_skewed ? 2 : 16);
  unit = std::min(unit, power_of_two_in(plane.at, 16));
  if (run.groups > 1 || run.blocks > 1) unit = std::min(unit, power_of_two_in(side.block_stride, 16));
  if (run.runs > 1) unit = std::min(unit, power_of_two_in(plane.run_bits / 8, 16));
  if (!plane.is_whole && run.parts_per_block > 1)
    unit = std::min(unit, plane.part_bits % 8 == 0 ? power_of_two_in(plane.part_bits / 8, 16) : 1);
  // Whole words may be read past the run (stages end in slack), but not twice as much as there is.
  return std::min(unit, power_of_two_in(round_up(plane.load_bytes, std::min(unit, 4)), 16));
}

// Where staged rows stand: with the widest loads, then the fewest bank conflicts, then the least memory.
void place_rows(SidePlan& side, bool is_key) {
  // stage_padded moves 512 bytes a step: whole rows, or whole parts of a row.
  const bool can_pad =
      !side.is_planar || (side.row_bytes % 16 == 0 && (512 % side.row_bytes == 0 || side.row_bytes % 512 == 0));
  const int step = side.is_planar ? 16 : std::max(side.row_unit, 4);
  const int shortest = side.is_planar ? side.row_bytes : round_up(side.row_bytes + (side.is_skewed ? 2 : 0), step);
  RunPlan& run = side.sections[0].run;
  if (run.planes.empty()) return void(side.pitch = shortest);  // masked: byte by byte
  int best_unit = 0;
  const auto consider = [&](int pitch, int swizzle) {
    const int unit = widest_load(side, run, run.planes[0], pitch);
    const int cost = bank_wavefronts(lane_addresses(side, is_key, pitch, swizzle), unit);
    if (unit < best_unit || (unit == best_unit && cost >= run.bank_cost)) return;
    best_unit = unit;
    run.bank_cost = cost;
    side.pitch = pitch, side.swizzle = swizzle;
  };
  consider(shortest, 0);
  // Chunks dealt anew cost no memory. The pattern must repeat after eight rows, and every load must lie in one chunk.
  const bool fits_chunks = std::all_of(side.sections.begin(), side.sections.end(), [&](const SectionPlan& section) {
    return std::all_of(section.run.planes.begin(), section.run.planes.end(), [&](const PlaneRun& plane) {
      return plane.load_bytes <= 16 && plane.part_bits % 8 == 0 && (plane.load_bytes & (plane.load_bytes - 1)) == 0;
    });
  });
  if (side.is_planar && fits_chunks && side.row_bytes >= 32 && (side.row_bytes & (side.row_bytes - 1)) == 0)
    for (int swizzle = 2; 64 << swizzle <= 8 * side.row_bytes; ++swizzle) consider(shortest, swizzle);
  for (int pitch = shortest + step; can_pad && pitch <= shortest + 112; pitch += step) consider(pitch, 0);
  for (SectionPlan& section : side.sections)
    for (PlaneRun& plane : section.run.planes) plane.unit = widest_load(side, section.run, plane, side.pitch);
}

int significant_bits(std::uint16_t half) {
  return half & 0x7FFF ? 11 - std::countr_zero(unsigned(half | 0x400) & 0x7FF) : 0;
}

// Halves that represent the centroids best: the unit is free (it joins another factor), so the one whose
// rounding errors are smallest in sum of squares is taken among 2048 candidates; the largest centroid lies in
// [1, 2). Of units that are equally good the one with the shortest numbers: products with short scales are exact then.
void choose_halves(SectionPlan& section) {
  const std::vector<double>& values = section.codes.values;
  double largest = 0;
  for (double v : values) largest = std::max(largest, std::fabs(v));
  std::pair<double, int> best{1e300, 0};
  double best_factor = 1;
  for (int i = 0; i < 2048; ++i) {
    const double factor = (1 + i / 2048.0) / largest;
    std::pair<double, int> cost;
    for (double v : values) {
      const std::uint16_t half = f16_from_float(float(v * factor));
      const double exact = v * factor, off = float_from_f16(half) - exact;
      cost.first += off * off / (exact * exact + 1e-30) * v * v;
      cost.second += significant_bits(half);
    }
    if (cost < best) best = cost, best_factor = factor;
  }
  section.unit = 1 / best_factor;
  for (double v : values) section.halves.push_back(f16_from_float(float(v * best_factor)));
}

// Every run must lie inside one group of scales: that of its first code, counted in runs.
Result<void> check_scales(const Format& format, const RunPlan& run) {
  for (int r = 0; r < run.runs; ++r)
    for (int part = 0; part < run.parts_per_block; ++part)
      for (int k = 0; k < run.codes; ++k) {
        const int element = run.elements[std::size_t((r * run.parts + part) * run.codes + k)] % format.block;
        if (element / format.scale.group != (r * run.parts_per_block + part) * run.codes / format.scale.group)
          return fail(
              Code::unsupported,
              fmt::format("the scale groups of {} ({} values) do not follow the runs that lanes read ({} codes)",
                          format.name, format.scale.group, run.codes));
      }
  return {};
}

ScaleUse use_of(const Format& format, bool is_key) {
  if (!format.has_scale()) return ScaleUse::none;
  const bool is_whole_block = format.scale.group == format.block;
  if ((format.has_minimum() && !is_key) || format.block < 32 || !is_whole_block) return ScaleUse::by_value;
  return ScaleUse::by_group;
}

// A block with its own mask: lanes share the channels evenly, and find each channel's code by themselves.
SectionPlan masked_section(const Format& format, int dim, int parts) {
  SectionPlan section;
  section.is_masked = true;
  section.codes = format.codes();
  section.use = ScaleUse::by_group;
  section.dim = dim;
  section.run.parts = section.run.parts_per_block = parts;
  section.run.groups = dim / format.block;
  section.run.codes = format.block / parts;
  for (int i = 0; i < dim; ++i) section.run.elements.push_back(i);
  for (const Section& each : format.sections)
    for (const double v : each.values) section.codes.values.push_back(v);
  section.codes.values.erase(section.codes.values.begin(), section.codes.values.begin() + (1 << section.codes.bits));
  choose_halves(section);
  return section;
}

}  // namespace

Result<SidePlan> plan_side(const Format& format, int head_dim, bool is_planar, bool is_key, bool by_integers,
                           int value_share, int widest_run) {
  const int parts = is_key ? 4 : 8 * value_share;
  SidePlan side;
  if (value_share > 1 && format.scale.renormalise)
    return fail(Code::unsupported, fmt::format("{}: one warp measures the length of a row", format.name));
  side.format = format;
  side.is_planar = is_planar;
  side.widest_run = widest_run;
  side.inner_dim = format.inner_dim(head_dim);
  const int blocks = format.stored_dim(head_dim) / format.block;
  side.row_bytes = blocks * (is_planar ? format.code_bytes : format.block_bytes);
  side.row_unit = is_planar ? 16 : power_of_two_in(side.row_bytes, 16);
  if (side.row_unit < 2)
    return fail(Code::unsupported,
                fmt::format("layout 'rows' needs rows of an even number of bytes; {} has {} at head_dim {}",
                            format.name, side.row_bytes, head_dim),
                {}, {"layout 'planar' works"});
  side.is_skewed = side.row_unit == 2;
  side.block_stride = is_planar ? format.code_bytes : format.block_bytes;
  if (format.stored_mask > 0) {
    if (value_share > 1) return fail(Code::unsupported, "blocks with a mask of their own are read by one warp");
    side.sections.push_back(masked_section(format, side.inner_dim, parts));
    if (format.block % 128 != 0)
      return fail(
          Code::unsupported,
          fmt::format("blocks with a mask of their own are read in parts of 16 values or more; {} has blocks of {}",
                      format.name, format.block));
  }
  int first = 0;
  for (int s = 0; s < int(format.sections.size()) && format.stored_mask == 0; ++s) {
    SectionPlan& section = side.sections.emplace_back();
    section.codes = format.sections[std::size_t(s)];
    section.use = use_of(format, is_key);
    section.adds_minima = section.use == ScaleUse::by_group && format.has_minimum();
    // Sums of 32 bits hold what 256 products of 16-bit and 16-bit integers add up to, less 16 bits, whatever they are.
    if (by_integers && format.block <= 256) section.integers = plan_integers(format, section.use);
    const bool is_by_value = section.use == ScaleUse::by_value;
    KV_TRY(run, plan_run(side, s, head_dim, parts, is_by_value, section.integers));
    section.run = run;
    if (!is_key && section.codes.kind == CodeKind::table && section.codes.bits <= 2 && run.codes % 8 == 0) {
      IntegerPlan nibbles;
      nibbles.slot_bits = 4;
      KV_TRY(by_nibbles, plan_run(side, s, head_dim, parts, is_by_value, nibbles));
      section.run = by_nibbles;
      section.by_nibbles = true;
    }
    section.first = first;
    section.dim = int(section.run.elements.size());
    first += section.dim;
    if (section.dim % 16 != 0)
      return fail(Code::unsupported,
                  fmt::format("the decode family takes sections of multiples of 16 values; {} has one of {}",
                              format.name, section.dim));
    if (section.use == ScaleUse::by_value) KV_CHECK(check_scales(format, run));
    if (section.integers.kind != IntegerKind::none)
      section.unit = section.integers.unit;
    else if (section.codes.kind == CodeKind::table)
      choose_halves(section);
    if (s == format.residual_section) section.factor = format.residual.factor;
  }
  // The first section's unit joins a factor that is there anyway, so that stored scales stay as they are (a half holds each of
  // them exactly); other sections bring theirs into their scale. Where a minimum is added, or only the direction of the codes
  // counts, there is nothing to join.
  const bool joins = !format.has_minimum() && !format.scale.renormalise;
  side.unit = joins ? side.sections[0].unit : 1;
  for (SectionPlan& section : side.sections) section.factor *= format.scale.renormalise ? 1 : section.unit / side.unit;
  place_rows(side, is_key);
  if (format.scale_bytes > 0) {
    side.scale_row_bytes = is_planar ? blocks * format.scale_bytes : 0;
    side.scale_pitch = is_planar ? side.scale_row_bytes : side.pitch;
    side.scale_stride = is_planar ? format.scale_bytes : format.block_bytes;
  }
  return side;
}

}  // namespace kvjit
