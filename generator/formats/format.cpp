// Derives what follows from the axes of a Format: offsets, sizes, and the head sizes that it can store. Files are read
// in format_file.cpp, and inline formats are made in format_inline.cpp.
// SPDX-License-Identifier: MIT
#include "generator/formats/format.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace kvjit {

int bytes_of(ScaleType type) {
  return type == ScaleType::f32 ? 4 : type == ScaleType::f16 || type == ScaleType::bf16 ? 2 : 1;
}

void derive(Format& f) {
  if (f.scale.group == 0) f.scale.group = f.block;
  if (f.scale.span == 0) f.scale.span = f.scale.group;
  const int scales = f.block / f.scale.group;
  const auto blocks = [&](const Field& field) {
    const Segment& segment = f.segments[std::size_t(field.section)];
    return segment.count / segment.format.block;
  };
  f.block_bytes = f.code_bytes = f.scale_bytes = 0;
  for (Field& field : f.fields) {
    switch (field.kind) {
      case FieldKind::codes: {
        const Section& section = f.sections[std::size_t(field.section)];
        field.bytes = (section.count(f.block) * field.bits + 7) / 8;
        // Whole pairs of bytes, so that blocks in a row stay aligned to two bytes.
        if (section.is_trellis())
          field.step = section.step_bits,
          field.bytes = (section.bits + (section.count(f.block) - 1) * field.step + 15) / 16 * 2;
        if (section.is_tail_biting) field.is_circular = true, field.bytes = section.count(f.block) * field.step / 8;
        break;
      }
      case FieldKind::residual_signs:
        field.bits = 1;
        [[fallthrough]];
      case FieldKind::mask:
        field.bytes = f.block / 8;
        break;
      case FieldKind::scale:
        field.bytes = scales * bytes_of(f.scale.type);
        break;
      case FieldKind::minimum:
      case FieldKind::residual_norm:
        field.bytes = scales * 2;
        break;
      case FieldKind::segment_codes:
        field.bytes = blocks(field) * f.segments[std::size_t(field.section)].format.code_bytes;
        break;
      case FieldKind::segment_scales:
        field.bytes = blocks(field) * f.segments[std::size_t(field.section)].format.scale_bytes;
        break;
      case FieldKind::pad:
      case FieldKind::foreign:
        break;
    }
    int* const plane = field.is_code()                                    ? &f.code_bytes
                       : field.kind == FieldKind::pad && !field.in_scales ? nullptr
                                                                          : &f.scale_bytes;
    field.at = f.block_bytes;
    f.block_bytes += field.bytes;
    if (plane) field.plane_at = *plane, *plane += field.bytes;
  }
}

double Format::gain() const { return is_unnormalised ? 1 / std::sqrt(double(rotation.size)) : 1; }

int Format::granule() const {
  return std::lcm(std::lcm(block, std::max(scale.span, 1)), rotation.is_identity() ? 1 : rotation.size);
}

int Format::stored_dim(int head_dim) const {
  const int whole = granule();
  return is_padded ? (head_dim + whole - 1) / whole * whole : head_dim;
}

const Field* Format::field(FieldKind kind) const {
  const auto found = std::find_if(fields.begin(), fields.end(), [&](const Field& f) { return f.kind == kind; });
  return found == fields.end() ? nullptr : &*found;
}

const Field* Format::field(FieldKind kind, int section) const {
  const auto found = std::find_if(fields.begin(), fields.end(),
                                  [&](const Field& f) { return f.kind == kind && f.section == section; });
  return found == fields.end() ? nullptr : &*found;
}

int Format::read_bytes() const {
  int end = 0;
  for (const Field& field : fields)
    if (field.kind != FieldKind::foreign) end = field.at + field.bytes;
  return end;
}

std::vector<double> values_by_cell(const Section& section) {
  if (section.cell_codes.empty()) return section.values;
  std::vector<double> values;
  for (const int code : section.cell_codes) values.push_back(section.values[std::size_t(code)]);
  return values;
}

std::vector<int> sign_magnitude_codes(std::size_t count) {
  std::vector<int> codes;
  for (std::size_t cell = 0; cell < count; ++cell)
    codes.push_back(int(cell >= count / 2 ? cell - count / 2 : count - 1 - cell));
  return codes;
}

double int8_step(const Section& section) {
  if (section.kind == CodeKind::plain || section.is_trellis() || section.is_vector()) return 0;
  if (section.kind == CodeKind::uniform) return section.max_code - section.offset <= 127 && section.offset <= 128;
  double largest = 0;
  for (const double v : section.values) largest = std::max(largest, std::fabs(v));
  const auto fits = [&](double step, double shift) {
    return std::all_of(section.values.begin(), section.values.end(), [&](double v) {
      const double n = v / step - shift;
      return n == std::floor(n) && n >= -128 && n <= 127;
    });
  };
  for (double step = std::exp2(std::ceil(std::log2(largest)) + 1); largest / step <= 128; step /= 2)
    if (fits(step, 0) || fits(step, 0.5)) return step;
  return 0;
}

Result<void> check_head_dim(const Format& f, int head_dim, const Where& where) {
  if (f.is_padded && head_dim > 0) return {};
  if (f.has_segments() && head_dim != f.block) {
    std::vector<std::string> notes;
    if (f.ends_with_head)
      notes.push_back(fmt::format("heads of more than {} channels work", f.segments.back().first));
    else
      for (const int head : f.heads) notes.push_back(fmt::format("heads of {} channels work", head));
    return fail(Code::bad_input,
                fmt::format("'{}' is a record of whole heads, and none has {} channels", f.name, head_dim), where,
                std::move(notes));
  }
  struct Granule {
    const char* name;
    int size;
  };
  for (const Granule& granule : {Granule{"rotation size", f.rotation.is_identity() ? 1 : f.rotation.size},
                                 Granule{"span of one scale", f.scale.span}, Granule{"block", f.block}})
    if (head_dim <= 0 || head_dim % granule.size != 0)
      return fail(Code::bad_input,
                  fmt::format("head_dim {} is not a multiple of {}, the {} of '{}'", head_dim, granule.size,
                              granule.name, f.name),
                  where, {fmt::format("multiples of {} work: {}, {}, ...", f.granule(), f.granule(), 2 * f.granule())});
  return {};
}

}  // namespace kvjit
