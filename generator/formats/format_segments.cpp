// Reads [[segments]] of a format file: ranges of channels of a head with formats of their own, and the fields that say
// where the codes and scales of each segment are. A head that has the first segments alone is a view of the record: the
// bytes of the others are foreign to it. The last segment may end where the head does. A rotation is that of all
// channels, which segments then divide.
// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include <algorithm>

#include "generator/formats/format_reader.hpp"

namespace kvjit {

// Reads [first, end] of a segment, whose end may be the word "head_dim". Returns whether it is.
bool FormatReader::segment_channels(schema::Table& table, std::vector<int>& channels) {
  constexpr long long kMost = 2048;
  const schema::Node* const list = table.find("channels");
  table.takes_items("channels", schema::Node::Kind::text, {"head_dim"});
  const bool is_open = list && list->items.size() == 2 && list->items[0].kind == schema::Node::Kind::integer &&
                       list->items[1].kind == schema::Node::Kind::text && list->items[1].text == "head_dim";
  if (!is_open) return table.read("channels", channels, {0, 4096}), false;
  const int begin = int(std::clamp(list->items[0].integer, -1LL, kMost));
  channels = {begin, head_dim_ > begin ? head_dim_ : 2 * begin};  // check_head_dim says that the head is too small
  return true;
}

Result<Segment> FormatReader::segment(const schema::Node& node, int first) {
  schema::Table table(&node, "[[segments]]", node.where);
  std::vector<int> channels;
  table.require("channels");
  f_.ends_with_head = segment_channels(table, channels);
  for (const char* key : {"codes", "fields"}) table.find(key);
  table.takes_items("fields", schema::Node::Kind::table);
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
  if (f_.codes().is_trellis() || f_.codes().is_vector() || f_.has_tensor_scale() || f_.has_minimum() ||
      f_.scale.renormalise)
    table.complain(node.where, "a segment has no trellis, no vectors, no minimum and no scale of the whole tensor");
  if (table.find("fields")) {
    fields(table);
    check_fields(table);
    if (std::any_of(f_.fields.begin(), f_.fields.end(), [](const Field& field) {
          return field.kind != FieldKind::codes && field.kind != FieldKind::scale;
        }))
      table.complain(table.where("fields"), "a segment has fields of codes and of scales: pads stand beside segments");
  } else {
    f_.fields.emplace_back().bits = f_.codes().bits;
    if (f_.has_scale()) f_.fields.emplace_back().kind = FieldKind::scale;
  }
  KV_CHECK(table.done());
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
  schema::Table accept = top.table("accept"), rotation_table = top.table("rotation");
  top.find("fields");
  KV_CHECK(top.done());
  int end = 0;
  for (const schema::Node& node : list.items) {
    if (f_.ends_with_head) return fail(Code::bad_input, "only the last segment ends at \"head_dim\"", node.where);
    FormatReader reader(rotations_, head_dim_);
    KV_TRY(segment, reader.segment(node, end));
    f_.ends_with_head = segment.format.ends_with_head;
    if (f_.ends_with_head) f_.heads.clear();  // no views
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
  f_.is_per_head = true;
  f_.scale.group = f_.scale.span = f_.block;
  if (const schema::Node* const words = rotation_table.find("size");
      words && words->kind == schema::Node::Kind::text && f_.heads.size() > 1)
    rotation_table.complain(words->where, "a record whose first segments are a view has a rotation of one size");
  if (rotation_table.exists()) KV_CHECK(rotation(rotation_table));
  if (f_.rounds_to_bf16)
    rotation_table.complain(rotation_table.where("round"), "values of segments are not rounded before they are coded");
  if (f_.rotation.has_head_signs() && int(f_.rotation.pre.size()) < f_.block)
    rotation_table.complain(rotation_table.where("name"),
                            fmt::format("rotation '{}' has signs of {} channels, and heads have {}", f_.rotation.name,
                                        f_.rotation.pre.size(), f_.block));
  KV_CHECK(rotation_table.done());
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
