// parse_tuning, tuning_text: read and write files of specs/tuning.
// SPDX-License-Identifier: MIT
#include "generator/catalogue/tuning.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <tuple>

#include "generator/base/schema.hpp"
#include "generator/catalogue/registry.hpp"
#include "generator/catalogue/side_format.hpp"
#include "generator/spec/layers.hpp"

namespace kvjit {
namespace {

constexpr schema::Range kWarps{1, 16}, kStages{2, 8}, kHeadDim{16, 1024}, kRows{1, 64}, kSubtiles{1, 2};
const std::vector<int> kCopies = {1, 2, 4, 8, 32};
const schema::Names<Layout> kLayouts = {{Layout::rows, "rows"}, {Layout::planar, "planar"}};

Result<void> resolve_row_side(const SideSpec& side, const char* key, int head_dim, const Registry& registry,
                              std::string& name, long long& bytes) {
  Spec spec;
  spec.head_dim = head_dim;
  spec.key_where = {{fmt::format("{}.format", key), side.where}, {"attention.head_dim", side.where}};
  KV_TRY(format, resolve_side(side, spec, key, registry));
  name = format.name, bytes = format.head_bytes(head_dim);
  return {};
}

void read_shape(schema::Table& table, BlockShape& shape) {
  for (const char* key : {"warps", "stages", "tile"}) table.require(key);
  table.read("warps", shape.warps, kWarps);
  table.read("stages", shape.stages, kStages);
  table.read("tile", shape.tile, {16, 32});
  table.read("copies", shape.copies, {1, 32});
  table.read("subtiles", shape.subtiles, kSubtiles);
  if (table.find("hold_queries")) table.read("hold_queries", shape.hold_queries.emplace());
  if (shape.tile % 16 != 0) table.complain(table.where("tile"), "tile must be 16 or 32");
  if (std::find(kCopies.begin(), kCopies.end(), shape.copies) == kCopies.end())
    table.complain(table.where("copies"), fmt::format("copies must be one of {}", fmt::join(kCopies, ", ")));
  if (shape.subtiles && *shape.subtiles * 16 > shape.tile)
    table.complain(table.where("subtiles"),
                   fmt::format("{} subtiles of 16 tokens are more than a tile of {}", *shape.subtiles, shape.tile));
}

Result<TuningRow> read_row(const schema::Node& node, const Registry& registry) {
  schema::Table table(&node, "a row", node.where);
  TuningRow row;
  row.where = node.where;
  for (const char* key : {"device", "k", "v", "head_dim", "rows"}) table.require(key);
  table.read("device", row.device);
  for (const auto& [key, side] : {std::pair{"k", &row.k}, {"v", &row.v}})
    *side = read_named_side(table, key).value_or(SideSpec{});
  table.read("head_dim", row.head_dim, kHeadDim);
  table.read("rows", row.rows, kRows);
  table.read("layout", row.layout, kLayouts);
  read_shape(table, row.shape);
  table.read("measured", row.measured);
  KV_CHECK(table.done());
  KV_CHECK(resolve_row_side(row.k, "k", row.head_dim, registry, row.k_name, row.k_bytes));
  KV_CHECK(resolve_row_side(row.v, "v", row.head_dim, registry, row.v_name, row.v_bytes));
  return row;
}

std::string side_text(const SideSpec& side) {
  if (!side.format.empty()) return fmt::format("\"{}\"", side.format);
  std::string keys;
  const auto add = [&](const char* key, const auto& value) {
    if (value) keys += fmt::format("{}{} = {}", keys.empty() ? "" : ", ", key, *value);
  };
  const auto quoted = [](const std::optional<std::string>& text) {
    return text ? std::optional(fmt::format("\"{}\"", *text)) : std::nullopt;
  };
  add("bits", side.bits);
  add("block", side.block);
  add("codebook", quoted(side.codebook));
  add("scale", quoted(side.scale));
  add("rotation", quoted(side.rotation));
  return fmt::format("{{ {} }}", keys);
}

}  // namespace

std::string to_string(const BlockShape& shape) {
  std::string text = fmt::format("{} warps x {} stages x {} tokens", shape.warps, shape.stages, shape.tile);
  if (shape.copies > 1) text += fmt::format(", {} copies", shape.copies);
  if (shape.subtiles) text += fmt::format(", {} subtile(s)", *shape.subtiles);
  if (shape.hold_queries) text += *shape.hold_queries ? ", Q in registers" : ", Q in shared memory";
  return text;
}

bool TuningRow::is_for_same(const TuningRow& other) const {
  const auto key = [](const TuningRow& r) {
    return std::tie(r.device, r.k_name, r.v_name, r.head_dim, r.rows, r.layout);
  };
  return key(*this) == key(other);
}

Result<std::vector<TuningRow>> parse_tuning(std::string_view toml_text, const std::string& file,
                                            const Registry& registry) {
  KV_TRY(root, schema::parse(toml_text, file));
  KV_CHECK(registry.require_arch(std::filesystem::path(file).stem().string(), {file}));
  schema::Table top(&root, "a tuning file", {file});
  top.takes_items("row", schema::Node::Kind::table);
  const schema::Node* list = top.find("row");
  if (list && list->kind != schema::Node::Kind::list)
    top.complain(list->where, "rows are written as [[row]], one after the other");
  KV_CHECK(top.done());
  std::vector<TuningRow> rows;
  if (!list) return rows;
  for (const schema::Node& node : list->items) {
    KV_TRY(row, read_row(node, registry));
    for (const TuningRow& other : rows)
      if (row.is_for_same(other))
        return fail(Code::bad_input,
                    fmt::format("two rows for {}, {}, {} rows on {}", row.k_name, row.v_name, row.rows, row.device),
                    row.where, {fmt::format("the other is in line {}", other.where.line)});
    rows.push_back(std::move(row));
  }
  return rows;
}

std::string tuning_text(const std::string& arch, const std::vector<TuningRow>& rows) {
  std::string text = fmt::format(
      "# SPDX-License-Identifier: MIT\n# Shapes of blocks measured on {}, by `kvjit bench --tune`. They change speed, "
      "never "
      "results.\n",
      arch);
  for (const TuningRow& row : rows) {
    text += fmt::format("\n[[row]]\ndevice = \"{}\"\nk = {}\nv = {}\nhead_dim = {}\nrows = {}\nlayout = \"{}\"\n",
                        row.device, side_text(row.k), side_text(row.v), row.head_dim, row.rows, to_string(row.layout));
    const BlockShape& shape = row.shape;
    text += fmt::format("warps = {}\nstages = {}\ntile = {}\n", shape.warps, shape.stages, shape.tile);
    if (shape.copies > 1) text += fmt::format("copies = {}\n", shape.copies);
    if (shape.subtiles) text += fmt::format("subtiles = {}\n", *shape.subtiles);
    if (shape.hold_queries) text += fmt::format("hold_queries = {}\n", *shape.hold_queries);
    if (row.measured.empty()) continue;
    text += "measured = [\n";
    for (const std::string& line : row.measured) text += fmt::format("  \"{}\",\n", line);
    text += "]\n";
  }
  return text;
}

}  // namespace kvjit
