// Reads [[segments]] of a format file: ranges of channels of a head with formats of their own, and the fields that say
// where the codes and scales of each segment are. A head that has the first segments alone is a view of the record: the
// bytes of the others are foreign to it.
// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include <algorithm>

#include "generator/formats/format_reader.hpp"

namespace kvjit {

Result<Segment> FormatReader::segment(const schema::Node& node, int first) {
  schema::Table table(&node, "[[segments]]", node.where);
  std::vector<int> channels;
  table.require("channels");
  table.read("channels", channels, {0, 4096});
  table.find("codes");
  const bool is_range = channels.size() == 2 && channels[0] == first && channels[1] > first && channels[1] % 32 == 0;
  if (!is_range)
    table.complain(table.where("channels"),
                   fmt::format("channels = [{}, end]: a segment begins where the one before ends, and has whole 32 "
                               "channels",
                               first));
  const int count = is_range ? channels[1] - first : 32;
  head_dim_ = count, f_.block = count;
  f_.block = size(table, "block", count);
  if (count % f_.block != 0)
    table.complain(table.where("block"), fmt::format("{} channels are no whole blocks of {}", count, f_.block));
  KV_CHECK(coding(table));
  if (f_.codes().is_trellis() || f_.has_tensor_scale() || f_.has_minimum() || f_.scale.renormalise)
    table.complain(node.where, "a segment has no trellis, no minimum and no scale of the whole tensor");
  KV_CHECK(table.done());
  f_.fields.emplace_back();
  f_.fields.back().bits = f_.codes().bits;
  if (f_.has_scale()) f_.fields.emplace_back().kind = FieldKind::scale;
  derive(f_);
  return Segment{first, count, std::move(f_)};
}

void FormatReader::segment_fields(schema::Table& top) {
  const schema::Node* const list = top.find("fields");
  if (!list || list->kind != schema::Node::Kind::list) return;
  for (const schema::Node& node : list->items) {
    schema::Table table(&node, "[[fields]]", node.where);
    Field field;
    enum class Kind { codes, scale, pad } kind = Kind::codes;
    table.require("field");
    table.read("field", kind, schema::Names<Kind>{{Kind::codes, "codes"}, {Kind::scale, "scale"}, {Kind::pad, "pad"}});
    field.kind = kind == Kind::pad     ? FieldKind::pad
                 : kind == Kind::codes ? FieldKind::segment_codes
                                       : FieldKind::segment_scales;
    if (kind == Kind::pad) {
      table.require("bytes");
      table.read("bytes", field.bytes, {1, 64});
      table.read("plane", field.in_scales, schema::Names<bool>{{true, "scales"}});
    } else {
      table.read("segment", field.section, {0, int(f_.segments.size()) - 1});
      Format& own = f_.segments[std::size_t(field.section)].format;
      if (kind == Kind::scale) table.read("rows", field.rows, {1, 64});
      for (Field& each : own.fields)
        if (each.kind == FieldKind::scale && kind == Kind::scale) each.rows = field.rows;
      if (kind == Kind::scale && !own.has_scale()) table.complain(node.where, "this segment has no scale");
      if (field.rows > 1 &&
          (own.block != f_.segments[std::size_t(field.section)].count || own.block / own.scale.group % field.rows != 0))
        table.complain(table.where("rows"), "rows divide the scales of a segment of one block");
    }
    if (Result<void> done = table.done(); !done)
      top.complain(done.error().where, done.error().message, done.error().notes);
    f_.fields.push_back(field);
  }
  for (std::size_t i = 0; i < f_.segments.size(); ++i)
    for (const FieldKind kind : {FieldKind::segment_codes, FieldKind::segment_scales}) {
      const auto count = std::count_if(f_.fields.begin(), f_.fields.end(), [&](const Field& field) {
        return field.kind == kind && field.section == int(i);
      });
      if (count != int(kind == FieldKind::segment_codes || f_.segments[i].format.has_scale()))
        top.complain(top.where("fields"),
                     fmt::format("fields must hold the codes and the scales of segment {} exactly once", i));
    }
}

// Kernels load and store numbers of two bytes and more at even addresses, in both layouts.
void FormatReader::check_segment_places(schema::Table& top) {
  const auto is_wide = [&](const Field& field) {
    return field.kind == FieldKind::segment_scales &&
           bytes_of(f_.segments[std::size_t(field.section)].format.scale.type) > 1;
  };
  const bool has_wide_scales = std::any_of(f_.fields.begin(), f_.fields.end(), is_wide);
  for (const Field& field : f_.fields)
    if ((field.kind == FieldKind::segment_codes || is_wide(field)) && (field.at % 2 != 0 || field.plane_at % 2 != 0))
      top.complain(top.where("fields"),
                   fmt::format("the {} of segment {} begin at an odd byte: a pad ahead of them helps",
                               field.kind == FieldKind::segment_codes ? "codes" : "scales", field.section));
  if (has_wide_scales && f_.scale_bytes % 2 != 0)
    top.complain(top.where("fields"), "the scales have an odd number of bytes: a pad with plane = \"scales\" helps");
}

Result<void> FormatReader::segments(schema::Table& top, const schema::Node& list) {
  if (list.kind != schema::Node::Kind::list || list.items.empty())
    top.complain(list.where, "segments must be a list of tables");
  schema::Table accept = top.table("accept");
  top.find("fields");
  KV_CHECK(top.done());
  f_.is_per_head = true;
  int end = 0;
  for (const schema::Node& node : list.items) {
    KV_TRY(segment, FormatReader(rotations_, head_dim_).segment(node, end));
    segment.format.name = f_.name;
    end = segment.first + segment.count;
    f_.heads.push_back(end);
    f_.segments.push_back(std::move(segment));
  }
  segment_fields(top);
  const bool needs_bound = std::any_of(f_.segments.begin(), f_.segments.end(), [](const Segment& segment) {
    return segment.format.codes().kind != CodeKind::plain;
  });
  if (needs_bound) top.require("accept");
  KV_CHECK(top.done());
  if (accept.exists()) accept.require("max_relative_mse");
  accept.read("max_relative_mse", f_.max_relative_mse);
  KV_CHECK(accept.done());
  f_.block = std::count(f_.heads.begin(), f_.heads.end(), head_dim_) != 0 ? head_dim_ : end;
  f_.scale.group = f_.scale.span = f_.block;
  derive(f_);  // the sizes of all fields
  check_segment_places(top);
  KV_CHECK(top.done());
  for (Field& field : f_.fields)
    if (field.kind != FieldKind::pad && f_.segments[std::size_t(field.section)].first >= f_.block)
      field.in_scales = field.kind == FieldKind::segment_scales, field.kind = FieldKind::foreign;
  while (f_.segments.back().first >= f_.block) f_.segments.pop_back();
  f_.sections = {f_.segments.front().format.codes()};
  derive(f_);
  return {};
}

}  // namespace kvjit
