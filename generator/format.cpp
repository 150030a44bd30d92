// Format: what follows from the axes. Files are read in format_file.cpp, inline numbers in format_inline.cpp.
// SPDX-License-Identifier: MIT
#include "generator/format.hpp"

#include <algorithm>
#include <numeric>

namespace kvjit {

int bytes_of(ScaleType type) { return type == ScaleType::f16 || type == ScaleType::bf16 ? 2 : 1; }

void derive(Format& f) {
  if (f.scale.group == 0) f.scale.group = f.block;
  if (f.scale.span == 0) f.scale.span = f.scale.group;
  const int scales = f.block / f.scale.group;
  f.block_bytes = f.code_bytes = f.scale_bytes = 0;
  for (Field& field : f.fields) {
    switch (field.kind) {
      case FieldKind::codes: {
        const Section& section = f.sections[std::size_t(field.section)];
        field.bytes = (section.count(f.block) * field.bits + 7) / 8;
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
      case FieldKind::pad:
        break;
    }
    int* const plane = field.is_code() ? &f.code_bytes : field.kind == FieldKind::pad ? nullptr : &f.scale_bytes;
    field.at = f.block_bytes;
    f.block_bytes += field.bytes;
    if (plane) field.plane_at = *plane, *plane += field.bytes;
  }
}

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

}  // namespace kvjit
