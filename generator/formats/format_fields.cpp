// Reads [[fields]] of a format file: the fields of a stored block, in file order.
// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include <algorithm>

#include "generator/formats/format_reader.hpp"

namespace kvjit {

// A field that is neither codes nor padding. Its size follows from the other axes.
void FormatReader::number_field(schema::Table& table, const std::string& name, Field& field) {
  const std::vector<std::pair<std::string, FieldKind>> kinds = {{"scale", FieldKind::scale},
                                                                {"minimum", FieldKind::minimum},
                                                                {"residual_norm", FieldKind::residual_norm},
                                                                {"residual_signs", FieldKind::residual_signs},
                                                                {"mask", FieldKind::mask}};
  std::vector<std::string> names = {"codes", "outliers", "residual", "pad"};
  bool is_known = false;
  for (const auto& [text, kind] : kinds) {
    names.push_back(text);
    if (name == text) field.kind = kind, is_known = true;
  }
  table.takes("field", schema::Node::Kind::text, names);
  if (table.find("field") && !is_known) table.complain_choice("field", name, names);
}

// Checks `split`, and reads the order of the parts of a byte.
void FormatReader::split(schema::Table& table, Field& field, int count) {
  const bool divides_bytes = field.bits == 1 || field.bits == 2 || field.bits == 4;
  const int parts = divides_bytes ? 8 / field.bits : 1;
  if (field.split && (!divides_bytes || count % (parts * field.split)))
    table.complain(table.where("split"), "'split' divides spans of whole bytes of codes of 1, 2 or 4 bits");
  std::vector<int> order;
  table.read("order", order, {0, 7});
  if (order.empty()) return;
  std::vector<int> sorted = order;
  std::sort(sorted.begin(), sorted.end());
  bool is_permutation = int(order.size()) == parts;
  for (std::size_t i = 0; is_permutation && i < sorted.size(); ++i) is_permutation = sorted[i] == int(i);
  if (!field.split || !is_permutation)
    return table.complain(table.where("order"),
                          fmt::format("'order' belongs to 'split' and has each of 0 to {} once", parts - 1));
  for (std::size_t i = 0; i < order.size(); ++i) field.order |= unsigned(order[i]) << 4 * i;
}

void FormatReader::fields(schema::Table& top) {
  const schema::Node* fields = top.find("fields");
  if (!fields) return;
  if (fields->kind != schema::Node::Kind::list) return top.complain(fields->where, "fields must be a list of tables");
  const int outliers = f_.residual_section == 1 ? 0 : int(f_.sections.size()) - 1 - int(f_.has_residual());
  for (const schema::Node& node : fields->items) {
    schema::Table table(&node, "[[fields]]", node.where);
    Field field;
    std::string name;
    table.require("field");
    table.read("field", name);
    const auto named = [&](const char* text) { return name == text; };
    if (named("codes") || (named("outliers") && outliers > 0) || (named("residual") && f_.has_residual())) {
      field.section = named("codes") ? 0 : named("outliers") ? 1 : f_.residual_section;
      const Section& section = f_.sections[std::size_t(field.section)];
      field.bits = section.bits;
      if (section.is_trellis()) field.step = section.step_bits;
      table.read("low", field.low, {0, section.bits - 1});
      table.read("bits", field.bits, {1, section.bits - field.low});
      table.read("split", field.split, {1, 2048});
      split(table, field, section.count(f_.block));
      table.read("nibbles", field.is_nibbles);
      if (field.is_nibbles && (field.bits != 3 || field.split || section.count(f_.block) % 32))
        table.complain(table.where("nibbles"), "'nibbles' packs groups of 32 whole codes of 3 bits");
      int least = 32;
      table.read("nibbles_from", least, {32, 4096});
      if (table.find("nibbles_from") && !field.is_nibbles)
        table.complain(table.where("nibbles_from"), "'nibbles_from' belongs to 'nibbles = true'");
      field.is_nibbles = field.is_nibbles && section.count(f_.block) >= least;
      if (section.is_vector() && (field.bits != section.bits || field.split))
        table.complain(node.where, "one field has the vectors");
      if (field.step > 0 && (field.bits != section.bits || field.split || field.is_nibbles))
        table.complain(node.where, "one field has the stream of a trellis");
      if (field.step == 0 && section.count(f_.block) * field.bits % 8)
        table.complain(node.where,
                       fmt::format("{} codes of {} bits do not fill whole bytes", section.count(f_.block), field.bits));
    } else if (named("pad")) {
      field.kind = FieldKind::pad;
      table.require("bytes");
      table.read("bytes", field.bytes, {1, 64});
    } else {
      number_field(table, name, field);
    }
    if (Result<void> done = table.done(); !done)
      top.complain(done.error().where, done.error().message, done.error().notes);
    f_.fields.push_back(field);
  }
}

// Checks that the fields hold each bit of each code exactly once, and each stored number exactly once.
void FormatReader::check_fields(schema::Table& top) {
  const Where where = top.where("fields");
  for (std::size_t s = 0; s < f_.sections.size(); ++s) {
    unsigned bits = 0;
    bool is_twice = false;
    for (const Field& field : f_.fields)
      if (field.kind == FieldKind::codes && field.section == int(s)) {
        const unsigned field_mask = unsigned(((1ull << field.bits) - 1) << field.low);
        is_twice |= (bits & field_mask) != 0;
        bits |= field_mask;
      }
    if (is_twice || bits != unsigned((1ull << f_.sections[s].bits) - 1))
      top.complain(where, s == 0 ? "fields must hold the codes exactly once"
                                 : fmt::format("fields must hold the {} exactly once",
                                               int(s) == f_.residual_section ? "residual" : "outliers"));
  }
  struct Need {
    FieldKind kind;
    const char* name;
    bool is_needed;
  };
  for (const Need& need :
       {Need{FieldKind::scale, "scale", f_.has_scale()}, Need{FieldKind::minimum, "minimum", f_.stores_minimum()},
        Need{FieldKind::residual_norm, "residual_norm", f_.has_residual()},
        Need{FieldKind::mask, "mask", f_.stored_mask > 0}}) {
    const auto count =
        std::count_if(f_.fields.begin(), f_.fields.end(), [&](const Field& f) { return f.kind == need.kind; });
    if (need.is_needed && count != 1)
      top.complain(where, fmt::format("fields must hold the {} exactly once", need.name));
    if (!need.is_needed && count != 0)
      top.complain(where, need.kind == FieldKind::scale
                              ? "fields hold a scale, but there is no [scale] that says how it is found"
                              : fmt::format("fields hold a {}, but nothing says how it is found", need.name));
  }
}

}  // namespace kvjit
