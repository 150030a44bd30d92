// plan_side: plans one side of the decode family: the staged row, the lane reads of its sections, and where scales are
// multiplied. Then place_rows (shared_layout.cpp) puts the rows into shared memory.
// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "generator/base/halves.hpp"
#include "generator/base/minifloat.hpp"
#include "generator/kernels/decode/plan.hpp"

namespace kvjit {
namespace {

// Scales of V become fp16. Those that are stored as f32 are multiplied by this first, and the output is divided by it:
// then fp16 holds scales from 2^-28 on, and scaled values up to 4094.
constexpr double kWideScales = 16;

// Makes the fp16 table of a section and its unit.
void choose_halves(SectionPlan& section) {
  const HalfTable table = halves_of(section.codes.values);
  section.unit = table.unit, section.halves = table.halves;
}

// Fails unless each lane read lies inside one scale group, the one that scale_index of
// templates/kernels/decode/stage_tile.cuh computes.
Result<void> check_scales(const Format& format, const LaneReads& reads) {
  for (int r = 0; r < reads.reads_per_group; ++r)
    for (int row_lane = 0; row_lane < reads.lanes_per_block; ++row_lane)
      for (int k = 0; k < reads.codes; ++k) {
        const int element =
            reads.elements[std::size_t((r * reads.lanes_per_row + row_lane) * reads.codes + k)] % format.block;
        if (element / format.scale.group != (r * reads.lanes_per_block + row_lane) * reads.codes / format.scale.group)
          return fail(Code::unsupported,
                      fmt::format("the scale groups of {} ({} values) do not follow the codes of a lane read ({})",
                                  format.name, format.scale.group, reads.codes));
      }
  return {};
}

// Scales of whole blocks of 32 values or more multiply scores or probabilities, others each value.
ScaleUse use_of(const Format& format, bool is_key) {
  if (!format.has_scale()) return ScaleUse::none;
  const bool is_whole_block = format.scale.group == format.block;
  if ((format.stores_minimum() && !is_key) || format.block < 32 || !is_whole_block) return ScaleUse::by_value;
  return ScaleUse::by_group;
}

// The section of blocks that store a mask. Lanes share the channels evenly, and each lane finds the codes of its own
// channels by the mask. The table has the entries of the narrow codes, then those of the wide ones.
SectionPlan masked_section(const Format& format, int dim, int lanes_per_row, int block_stride) {
  SectionPlan section;
  section.is_masked = true;
  section.codes = format.codes();
  section.use = ScaleUse::by_group;
  section.dim = dim;
  section.reads.lanes_per_row = section.reads.lanes_per_block = lanes_per_row;
  section.reads.groups = dim / format.block;
  section.reads.block_stride = block_stride;
  section.reads.codes = format.block / lanes_per_row;
  for (int i = 0; i < dim; ++i) section.reads.elements.push_back(i);
  for (const Section& each : format.sections)
    for (const double v : each.values) section.codes.values.push_back(v);
  section.codes.values.erase(section.codes.values.begin(), section.codes.values.begin() + (1 << section.codes.bits));
  choose_halves(section);
  return section;
}

// Bits of V's code lanes if several codes are looked up at once, else 0. The code lanes are as narrow as codes allow,
// and a lane read must fill whole words of them.
int code_lane_bits(const SectionPlan& section) {
  if (section.codes.kind != CodeKind::table || section.codes.bits > 4 || section.codes.is_trellis()) return 0;
  if (section.reads.is_joined) return section.codes.bits == 4 && section.reads.codes % 4 == 0 ? 4 : 0;
  if (section.codes.bits <= 2 && section.reads.codes % 16 == 0) return 2;
  if (section.reads.codes % 8 != 0) return 0;
  return section.codes.bits == 3 && section.reads.planes.size() == 1 ? 3 : 4;
}

// Whether scales of V are stored as f32.
bool has_wide_scales(const Format& format) {
  const auto is_wide = [](const Format& f) { return f.has_scale() && f.scale.type == ScaleType::f32; };
  return is_wide(format) || std::any_of(format.segments.begin(), format.segments.end(),
                                        [&](const Segment& segment) { return is_wide(segment.format); });
}

// Whether the values of a section, or its scales if these multiply probabilities, may leave fp16's range.
bool leaves_halves(const Format& format, const SectionPlan& section) {
  constexpr double kMostHalf = 65504, kMostE4m3 = 448;
  if (section.is_wide()) return true;
  if (section.use == ScaleUse::none || !format.has_scale()) return false;
  const ScaleType type = format.scale.type;
  if (type == ScaleType::f32 || type == ScaleType::bf16 || type == ScaleType::e8m0) return true;
  const bool is_by_value = section.use == ScaleUse::by_value;
  const double scale = (type == ScaleType::f16 ? kMostHalf : kMostE4m3) * section.factor,
               largest = is_by_value ? scale * section.largest_code() : scale;
  return largest > kMostHalf || (is_by_value && format.has_minimum());
}
// Whether the scales of all values are halves as they are stored.
bool has_half_scales(const SidePlan& side) {
  return std::all_of(side.sections.begin(), side.sections.end(), [&](const SectionPlan& section) {
    const Format& format = section.own ? *section.own : side.format;
    return section.use == ScaleUse::by_value && !section.is_wide() && !section.subtracts_zeros && section.factor == 1 &&
           format.has_scale() && format.scale.type == ScaleType::f16 && format.field(FieldKind::scale)->rows == 1;
  });
}

// Plans how lanes read section `index` of the side's format, and how V's codes are looked up.
Result<void> read_section(const SidePlan& side, int index, int head_dim, int lanes_per_row, bool is_key,
                          SectionPlan& section) {
  const bool is_by_value = section.use == ScaleUse::by_value;
  KV_TRY(reads, plan_lane_reads(side, index, head_dim, lanes_per_row, is_by_value, section.integers.slots));
  section.reads = reads;
  if (!is_key) section.code_lane_bits = code_lane_bits(section);
  if (section.code_lane_bits == 0) return {};
  KV_TRY(spread,
         plan_lane_reads(side, index, head_dim, lanes_per_row, is_by_value, {section.code_lane_bits, 0, false}));
  if (spread.is_joined == reads.is_joined)
    section.reads = spread;
  else
    section.code_lane_bits = 0;
  return {};
}

// In how many parts of one scale each the fields of a segment divide; 1: they do not.
int scale_parts(const Segment& segment) {
  const Format& f = segment.format;
  const int group = f.scale.group, count = f.block / group;
  if (f.block != segment.count || !f.has_scale() || group % 32 != 0) return 1;
  for (const Field& field : f.fields) {
    if (field.bytes % count != 0 || field.rows > 1) return 1;
    for (int k = 0; field.kind == FieldKind::codes && k < f.block; ++k)
      if (field.bit_of(k) != field.bit_of(k % group) + k / group * field.bytes / count * 8) return 1;
  }
  return count;
}

// In how many blocks a segment of K divides, which become sections of their own. A kernel unrolls all sections, but the
// groups of one section two at a time. Many small blocks are better in a loop (NOTES.md, "Values in K's rows").
int block_parts(const Segment& segment) {
  constexpr int kMostBlocks = 4;
  const int blocks = segment.count / segment.format.block;
  return segment.format.block % 128 == 0 && blocks <= kMostBlocks ? blocks : 1;
}

// The segments of a side. Field::plane_at of their formats counts from the start of the row here. Segments of K with
// several scales are divided, because the scale of a whole part multiplies scores, in float32.
std::vector<Segment> segments_of(const SidePlan& side, bool is_key) {
  std::vector<Segment> parts;
  for (std::size_t i = 0; i < side.format.segments.size(); ++i) {
    const Segment& segment = side.format.segments[i];
    const int blocks = is_key ? block_parts(segment) : 1, scales = is_key ? scale_parts(segment) : 1;
    for (int n = 0; n < blocks * scales; ++n) {
      Segment& part = parts.emplace_back(segment);
      Format& f = part.format;
      const int code_bytes = f.code_bytes, scale_bytes = f.scale_bytes;  // of a whole block
      f.block /= scales, f.code_bytes /= scales, f.scale_bytes /= scales;
      part.count /= blocks * scales, part.first += n * part.count;
      for (Field& field : f.fields) {
        const Field& place =
            *side.format.field(field.is_code() ? FieldKind::segment_codes : FieldKind::segment_scales, int(i));
        field.bytes /= scales;
        field.plane_at += (side.is_planar ? place.plane_at : place.at) + n % scales * field.bytes +
                          n / scales * (field.is_code() ? code_bytes : scale_bytes);
      }
    }
  }
  return parts;
}

// Where the scales of a segment meet its codes. Probabilities are multiplied by the scales of all segments of V or of
// none, because sums of V are then relative to the largest scale of the row. So a segment without a scale has the scale
// 1 beside those that multiply probabilities, and none beside those that multiply values.
ScaleUse use_of(const std::vector<Segment>& all, const Segment& segment, bool is_key) {
  const auto is_by_value = [&](const Segment& each) { return use_of(each.format, is_key) == ScaleUse::by_value; };
  const bool multiplies_values = !is_key && std::any_of(all.begin(), all.end(), is_by_value);
  if (!segment.format.has_scale()) return multiplies_values ? ScaleUse::none : ScaleUse::by_group;
  return multiplies_values ? ScaleUse::by_value : use_of(segment.format, is_key);
}

// The section of a segment: that of its own format in layout planar, from the segment's place in the row on.
Result<SectionPlan> segment_section(const SidePlan& side, const Segment& segment, ScaleUse use, int lanes_per_row,
                                    bool is_key) {
  SidePlan part;
  part.format = segment.format, part.is_planar = true, part.widest_read = side.widest_read;
  part.block_stride = part.format.code_bytes;
  SectionPlan section;
  section.codes = part.format.codes();
  section.use = use;
  KV_CHECK(read_section(part, 0, segment.count, lanes_per_row, is_key, section));
  if (section.use == ScaleUse::by_value) KV_CHECK(check_scales(part.format, section.reads));
  for (int& element : section.reads.elements) element += segment.first;
  section.dim = int(section.reads.elements.size());
  if (section.dim != segment.count)
    return fail(Code::unsupported, fmt::format("{}: the segment of {} channels from {} on is no row of its format",
                                               side.format.name, segment.count, segment.first));
  if (section.codes.kind == CodeKind::table) choose_halves(section);
  section.keeps_order = is_key && section.codes.kind == CodeKind::plain && section.codes.element == Element::e4m3 &&
                        section.reads.planes.size() == 1;
  section.scale_stride = part.format.scale_bytes;
  section.own = std::move(part.format);
  return section;
}

// Whether V can be loaded by ldmatrix: the codes that eight lanes read of a token are one chunk of 16 bytes, without
// scales, which multiply the probabilities: a token has one.
bool are_matrices(const SidePlan& side) {
  if (!side.is_planar || side.sections.size() != 1) return false;
  const SectionPlan& section = side.sections[0];
  const LaneReads& reads = section.reads;
  if (section.code_lane_bits != 4 || section.use != ScaleUse::by_group || !reads.is_joined || reads.blocks > 1 ||
      reads.groups > 1 || reads.reads_per_group > 1)
    return false;
  const FieldRead& plane = reads.planes[0];
  return plane.lane_bits == 16 && plane.at == 0 && side.row_bytes % 16 == 0;
}

}  // namespace

double SectionPlan::largest_code() const {
  if (codes.kind == CodeKind::uniform) return std::max(codes.offset, (1 << codes.bits) - 1 - codes.offset);
  double largest = 0;
  for (const std::uint16_t half : halves) largest = std::max(largest, std::abs(double(float_from_f16(half))));
  if (!halves.empty()) return largest;
  constexpr double kMostE4m3 = 448, kMostE5m2 = 57344, kMostF16 = 65504;
  return codes.element == Element::e5m2 ? kMostE5m2 : codes.element == Element::f16 ? kMostF16 : kMostE4m3;
}

bool SidePlan::codes_are_numbers() const {
  return std::all_of(sections.begin(), sections.end(), [&](const SectionPlan& section) {
    if (section.use == ScaleUse::by_value && !is_wide) return false;
    return section.codes.kind != CodeKind::plain || (is_wide && section.is_wide());
  });
}

Result<SidePlan> plan_side(const Format& format, int head_dim, bool is_planar, bool is_key, bool by_integers,
                           int value_share, int widest_read, bool by_matrices) {
  const int lanes_per_row = is_key ? 4 : 8 * value_share;
  SidePlan side;
  if (value_share > 1 && format.scale.renormalise)
    return fail(Code::unsupported, fmt::format("{}: one warp measures the length of a row", format.name));
  side.format = format;
  side.is_planar = is_planar;
  side.widest_read = widest_read;
  side.rotated_dim = format.rotated_dim(head_dim);
  const int blocks = format.stored_dim(head_dim) / format.block;
  side.row_bytes = blocks * (is_planar ? format.code_bytes : format.block_bytes);
  if (format.has_segments() && !is_planar) side.row_bytes = format.read_bytes();
  if (format.is_ragged(head_dim)) {
    // Values without blocks have the same bytes in both layouts.
    side.pad_bytes = side.rotated_dim * format.block_bytes - side.row_bytes;
    side.is_planar = is_planar = false;
    if (side.row_bytes % 16 != 0)
      return fail(Code::unsupported,
                  fmt::format("{}: a row of {} values is no multiple of 16 bytes", format.name, head_dim));
  }
  side.is_misaligned = !is_planar && side.row_bytes % 16 != 0;
  if (!is_planar && side.row_bytes % 2 != 0)
    return fail(Code::unsupported,
                fmt::format("layout 'rows' needs rows of an even number of bytes; {} has {} at head_dim {}",
                            format.name, side.row_bytes, head_dim),
                {}, {"layout 'planar' works"});
  side.block_stride = is_planar ? format.code_bytes : format.block_bytes;
  if (format.stored_mask > 0) {
    if (value_share > 1) return fail(Code::unsupported, "blocks with a mask of their own are read by one warp");
    side.sections.push_back(masked_section(format, side.rotated_dim, lanes_per_row, side.block_stride));
    if (format.block % 128 != 0)
      return fail(
          Code::unsupported,
          fmt::format("blocks with a mask of their own are read 16 values or more at a time; {} has blocks of {}",
                      format.name, format.block));
  }
  int first = 0;
  const std::vector<Segment> segments = segments_of(side, is_key);
  for (const Segment& segment : segments) {
    KV_TRY(section, segment_section(side, segment, use_of(segments, segment, is_key), lanes_per_row, is_key));
    section.first = first;
    first += section.dim;
    side.sections.push_back(std::move(section));
  }
  const int whole_sections = format.stored_mask > 0 || format.has_segments() ? 0 : int(format.sections.size());
  for (int s = 0; s < whole_sections; ++s) {
    SectionPlan& section = side.sections.emplace_back();
    section.codes = format.sections[std::size_t(s)];
    section.use = use_of(format, is_key);
    section.subtracts_zeros = section.use == ScaleUse::by_group && format.has_zero_point() && !is_key;
    section.adds_minima = section.use == ScaleUse::by_group && format.has_minimum() && !section.subtracts_zeros;
    // Products are summed in int32, which holds 256 of them: an element of Q is at most 32512, an entry of K below 128.
    if (by_integers && format.block <= 256) section.integers = plan_integers(format, section.use);
    if (section.integers.counts_from_zero) section.adds_minima = false;
    KV_CHECK(read_section(side, s, head_dim, lanes_per_row, is_key, section));
    section.first = first;
    section.dim = int(section.reads.elements.size());
    first += section.dim;
    if (section.dim % 16 != 0)
      return fail(Code::unsupported,
                  fmt::format("the decode family takes sections of multiples of 16 values; {} has one of {}",
                              format.name, section.dim));
    if (section.use == ScaleUse::by_value) KV_CHECK(check_scales(format, section.reads));
    if (section.integers.kind != IntegerKind::none)
      section.unit = section.integers.unit;
    else if (section.codes.kind == CodeKind::table)
      choose_halves(section);
    else if (section.codes.is_vector())
      for (const double radius : section.codes.values) section.halves.push_back(f16_from_float(float(radius)));
    if (s == format.residual_section) section.factor = format.residual.factor;
  }
  // The unit of the first section is multiplied into a factor that exists anyway, so stored scales stay unchanged and
  // exact as fp16. Other sections multiply theirs into their scales. If a minimum is added, codes are renormalised, or
  // a segment has no scale, the first section does so too.
  const bool has_bare_segment =
      format.has_segments() && std::any_of(side.sections.begin(), side.sections.end(),
                                           [](const SectionPlan& section) { return section.use == ScaleUse::none; });
  const bool joins = !format.has_minimum() && !format.scale.renormalise && !has_bare_segment;
  side.unit = joins ? side.sections[0].unit : 1;
  for (SectionPlan& section : side.sections) section.factor *= format.scale.renormalise ? 1 : section.unit / side.unit;
  for (SectionPlan& section : side.sections) section.factor *= format.gain();
  if (!is_key && (joins || format.has_zero_point()) && has_wide_scales(format)) {
    for (SectionPlan& section : side.sections) section.factor *= kWideScales;
    side.unit /= kWideScales;
  }
  const bool leaves = std::any_of(side.sections.begin(), side.sections.end(), [&](const SectionPlan& section) {
    return leaves_halves(section.own ? *section.own : format, section);
  });
  // The scale of a residual is a product of halves and a factor, which a half holds for large rows alone.
  side.is_wide = !is_key && (leaves || format.has_residual());
  side.has_half_scales = leaves && !format.has_residual() && !(is_key && format.has_minimum()) && has_half_scales(side);
  side.by_matrices = by_matrices && are_matrices(side);
  place_rows(side, is_key);
  if (format.scale_bytes > 0) {
    side.scale_row_bytes = is_planar ? blocks * format.scale_bytes : 0;
    side.scale_pitch = is_planar ? side.scale_row_bytes : side.pitch;
    side.scale_stride = is_planar ? format.scale_bytes : format.block_bytes;
  }
  return side;
}

}  // namespace kvjit
