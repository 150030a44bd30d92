// parse_specs: reads the TOML of a spec to a tree, takes [matrix] out, and for each combination of its values puts them
// into a copy of the tree, which is then read like a spec without [matrix].
// SPDX-License-Identifier: MIT
#include "generator/spec/spec.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "generator/base/schema.hpp"
#include "generator/spec/features.hpp"
#include "generator/spec/layers.hpp"

namespace kvjit {
namespace {

using schema::Node;

constexpr std::size_t kMaxCombinations = 4096;
constexpr schema::Range kHeadDim{16, 1024}, kGroup{1, 256}, kQueries{1, 65536}, kWindow{-1, kMostWindow},
    kPageTokens{8, 256}, kTokenHeads{2, 16};
const std::vector<std::string> kPlannedLayouts = {"interleaved"};  // the name is reserved; no kernel serves it yet
const schema::Names<Layout> kLayouts = {{Layout::rows, "rows"}, {Layout::planar, "planar"}, {Layout::paged, "paged"}};
const schema::Names<Layout> kPageLayouts = {{Layout::rows, "rows"}, {Layout::planar, "planar"}};
const schema::Names<Element> kElements = {{Element::f16, "f16"}, {Element::bf16, "bf16"}, {Element::f32, "f32"}};

void collect_places(const Node& table, const std::string& prefix, std::map<std::string, Where>& places) {
  for (const Node& item : table.items) {
    places[prefix + item.key] = item.where;
    if (item.kind == Node::Kind::table) collect_places(item, prefix + item.key + ".", places);
  }
}

// Numbers that kernels read as floats, with their reciprocals.
constexpr double kLeastFactor = 1e-30, kMostFactor = 1e30;

// query_length is a number, or "any" with a maximum.
void read_queries(schema::Table& table, Spec& spec) {
  table.takes("query_length", Node::Kind::text, {"any"});
  const Node* node = table.find("query_length");
  if (node && node->kind == Node::Kind::text) {
    spec.varlen = true, spec.query_length = kQueries.high;
    if (node->text != "any")
      table.complain(node->where, fmt::format("query_length '{}' is no number", node->text),
                     {"a number fixes the queries of a call; \"any\": each call says how many it has"});
  } else {
    table.read("query_length", spec.query_length, kQueries);
  }
  table.read("max_query_length", spec.query_length, kQueries);
  if (table.find("max_query_length") && !spec.varlen)
    table.complain(table.find("max_query_length")->key_where, "'max_query_length' without query_length = \"any\"",
                   {"query_length = \"any\" lets calls have up to so many queries"});
}

void read_attention(schema::Table& table, Spec& spec) {
  table.read("head_dim", spec.head_dim, kHeadDim);
  table.read("head_dim_k", spec.head_dim, kHeadDim);
  table.read("head_dim_v", spec.head_dim_v, kHeadDim);
  if (table.find("head_dim") && table.find("head_dim_k"))
    table.complain(table.where("head_dim_k"), "head_dim is of K and of V unless head_dim_v says otherwise",
                   {"leave out head_dim or head_dim_k"});
  table.read("q_heads_per_kv", spec.q_heads_per_kv, kGroup);
  read_queries(table, spec);
  std::vector<std::string> names;
  table.read("features", names);
  table.takes_items("features", Node::Kind::text, feature_names());
  table.read("q_type", spec.q_type, kElements);
  table.read("out_type", spec.out_type, kElements);
  table.read("fuse", spec.fuse);
  table.read("append", spec.append);
  table.read("sparse_v", spec.sparse_v);
  if (spec.sparse_v != 0 && !(spec.sparse_v >= kLeastFactor && spec.sparse_v < 1))
    table.complain(table.where("sparse_v"), "sparse_v must be 0 (off) or a share from 1e-30 to below 1",
                   {"1e-3: tokens of less than a thousandth of the largest probability"});
  table.read("softcap", spec.features.softcap);
  if (spec.features.softcap != 0 && !(spec.features.softcap >= kLeastFactor && spec.features.softcap <= kMostFactor))
    table.complain(table.where("softcap"), "softcap must be 1e-30 to 1e30, or 0 (none)",
                   {"scores become softcap * tanh(score / softcap)"});
  table.read("hook", spec.hook);
  std::vector<int> window;
  table.read("window", window, kWindow);
  if (const Node* node = table.find("window"); node && node->kind == Node::Kind::list && node->items.size() != 2)
    table.complain(node->where, fmt::format("window must be two numbers, not {}", node->items.size()),
                   {"[left, right]: tokens before and behind a query that it sees; -1: all of them"});
  if (window.size() == 2) spec.features.window_left = window[0], spec.features.window_right = window[1];
  const std::vector<std::string>& valid_names = feature_names();
  for (std::size_t i = 0; i < names.size(); ++i)
    if (std::find(valid_names.begin(), valid_names.end(), names[i]) == valid_names.end())
      table.complain(table.find("features")->items[i].where, fmt::format("feature '{}' is not known", names[i]),
                     names[i] == "softcap" || names[i] == "window" || names[i] == "hook"
                         ? std::vector<std::string>{fmt::format("it is a key with a value: attention.{}", names[i])}
                         : schema::suggestions(names[i], "features", valid_names));
  for (const std::string& name : names) set_feature(spec.features, name);
  spec.causal = std::count(names.begin(), names.end(), "causal") != 0;
}

void read_layout(schema::Table& table, Spec& spec) {
  std::string name;
  table.read("layout", name);
  if (std::find(kPlannedLayouts.begin(), kPlannedLayouts.end(), name) != kPlannedLayouts.end())
    table.complain(table.where("layout"), fmt::format("layout '{}' is not served yet", name),
                   {"layouts: rows, planar, paged"}, Code::unsupported);
  else
    table.read("layout", spec.layout, kLayouts);
  table.read("token_heads", spec.token_heads, kTokenHeads);
  if (table.find("token_heads") && spec.layout != Layout::rows)
    return table.complain(table.find("token_heads")->key_where,
                          fmt::format("'token_heads' in layout '{}'", to_string(spec.layout)),
                          {"layout = \"rows\" has the heads of a token side by side"});
  for (const char* key : {"page_tokens", "page_layout"})
    if (table.find(key) && spec.layout != Layout::paged)
      return table.complain(table.find(key)->key_where, fmt::format("'{}' without pages", key),
                            {"layout = \"paged\" has them"});
  if (spec.layout != Layout::paged) return;
  spec.page_tokens = 16;
  table.read("page_tokens", spec.page_tokens, kPageTokens);
  table.read("page_layout", spec.page_layout, kPageLayouts);
  if (!schema::is_power_of_two(spec.page_tokens))
    table.complain(table.where("page_tokens"),
                   fmt::format("page_tokens must be a power of two, {}..{}", kPageTokens.low, kPageTokens.high));
}

void read_target(schema::Table& table, Spec& spec) {
  table.takes("arch", Node::Kind::text);
  table.takes_items("arch", Node::Kind::text);
  const Node* arch = table.find("arch");
  if (arch && arch->kind == Node::Kind::text)
    spec.archs = {arch->text};
  else
    table.read("arch", spec.archs);
  table.read("checks", spec.checks);
}

Result<Spec> read_spec(const Node& root, const std::string& file) {
  Spec spec;
  spec.file = file;
  collect_places(root, "", spec.key_where);
  schema::Table top(&root, "a spec", {file});
  for (const char* key : {"k", "v"}) top.require(key);
  top.read("title", spec.title);
  top.takes("matrix", Node::Kind::table);
  top.find("matrix");  // take_matrix has removed it; this makes it a known key for did-you-mean
  schema::Table k = top.table("k"), v = top.table("v"), attention = top.table("attention");
  schema::Table cache = top.table("cache"), target = top.table("target"), layers = top.table("layers");
  KV_CHECK(top.done());
  spec.k = read_side(k);
  spec.v = read_side(v);
  read_attention(attention, spec);
  read_layout(cache, spec);
  read_target(target, spec);
  if (layers.exists()) spec.layers = std::make_shared<const LayersSpec>(read_layers(layers));
  for (schema::Table* table : {&k, &v, &attention, &cache, &target, &layers}) KV_CHECK(table->done());
  return spec;
}

// A key of [matrix], and the values that are swept.
struct Axis {
  std::string key;
  Where key_where;
  std::vector<Node> values;
};

// Removes [matrix] from the tree and returns its keys.
Result<std::vector<Axis>> take_matrix(Node& root) {
  std::vector<Axis> axes;
  const auto found =
      std::find_if(root.items.begin(), root.items.end(), [](const Node& n) { return n.key == "matrix"; });
  if (found == root.items.end()) return axes;
  const Node matrix = std::move(*found);
  root.items.erase(found);
  if (matrix.kind != Node::Kind::table)
    return fail(Code::bad_input, "matrix must be a table of lists", matrix.where,
                {"for example \"k.bits\" = [2, 3, 4]"});
  std::size_t combinations = 1;
  for (const Node& item : matrix.items) {
    if (item.kind != Node::Kind::list || item.items.empty())
      return fail(Code::bad_input, fmt::format("'{}' in [matrix] must be a list of the values to sweep", item.key),
                  item.where,
                  item.kind == Node::Kind::table
                      ? std::vector<std::string>{fmt::format("a key of a table is quoted as a whole: \"{}.{}\"",
                                                             item.key, item.items.empty() ? "key" : item.items[0].key)}
                      : std::vector<std::string>{});
    if (item.key == "matrix" || item.key.starts_with("matrix."))
      return fail(Code::bad_input, "a matrix cannot sweep itself", item.key_where);
    combinations *= std::min(item.items.size(), kMaxCombinations + 1);
    if (combinations > kMaxCombinations)
      return fail(Code::bad_input, fmt::format("[matrix] has more than {} combinations", kMaxCombinations), item.where);
    axes.push_back({item.key, item.key_where, item.items});
  }
  return axes;
}

// Sets root.a.b = value, and makes tables that do not exist.
Result<void> put(Node& root, const Axis& axis, const Node& value) {
  Node* at = &root;
  for (std::size_t from = 0;;) {
    const std::size_t dot = axis.key.find('.', from);
    const std::string name = axis.key.substr(from, dot - from);
    if (at->kind != Node::Kind::table)
      return fail(Code::bad_input, fmt::format("'{}' in [matrix] goes into something that is not a table", axis.key),
                  axis.key_where);
    Node* next = const_cast<Node*>(at->find(name));
    if (!next) {
      next = &at->items.emplace_back();
      next->key = name;
      next->key_where = next->where = axis.key_where;
    }
    at = next;
    if (dot == std::string::npos) break;
    from = dot + 1;
  }
  Node placed = value;
  placed.key = at->key;
  placed.key_where = axis.key_where;
  *at = std::move(placed);
  return {};
}

std::string spelled(const Node& node) {
  switch (node.kind) {
    case Node::Kind::text:
      return node.text;
    case Node::Kind::integer:
      return std::to_string(node.integer);
    case Node::Kind::real:
      return fmt::format("{}", node.real);
    case Node::Kind::boolean:
      return node.boolean ? "true" : "false";
    case Node::Kind::list: {
      std::vector<std::string> items;
      for (const Node& item : node.items) items.push_back(spelled(item));
      return fmt::format("[{}]", fmt::join(items, ","));
    }
    default:
      return "{}";
  }
}

}  // namespace

SideSpec read_side(schema::Table& table) {
  SideSpec side;
  side.where = table.where();
  table.read("format", side.format);
  table.read("bits", side.bits, schema::kBits);
  table.read("block", side.block, schema::kBlock);
  table.read("codebook", side.codebook);
  table.takes("codebook", Node::Kind::text, kInlineCodebooks);
  table.read("scale", side.scale);
  table.takes("scale", Node::Kind::text, kInlineScales);
  table.read("rotation", side.rotation);
  table.read("calibration", side.calibration);
  table.read("in_keys", side.in_keys);
  table.read("swizzle", side.swizzles_scales, schema::Names<bool>{{true, "4x4"}});
  if (side.block && !schema::is_power_of_two(*side.block))
    table.complain(table.where("block"),
                   fmt::format("block must be a power of two, {}..{}", schema::kBlock.low, schema::kBlock.high));
  for (const char* key :
       {"format", "bits", "block", "codebook", "scale", "rotation", "calibration", "in_keys", "swizzle"}) {
    if (!table.find(key)) continue;
    side.key_where[key] = table.where(key);
    if (table.find("format") && key != std::string_view("format") && key != std::string_view("calibration") &&
        key != std::string_view("in_keys") && key != std::string_view("swizzle"))
      table.complain(
          table.find(key)->key_where, fmt::format("'{}' together with 'format'", key),
          {"a format states all its numbers: keep the format, or bits, block, codebook, scale and rotation"});
  }
  table.require("format", "bits");
  return side;
}

Where Spec::where_of_dim(const std::string& side) const {
  const std::string own = "attention.head_dim_" + side;
  return where(key_where.count(own) ? own : "attention.head_dim");
}

Where Spec::where(const std::string& key) const {
  const auto found = key_where.find(key);
  return found == key_where.end() ? Where{file} : found->second;
}

Result<std::vector<Spec>> parse_specs(std::string_view toml_text, const std::string& file) {
  KV_TRY(root, schema::parse(toml_text, file));
  KV_TRY(axes, take_matrix(root));
  std::size_t combinations = 1;
  for (const Axis& axis : axes) combinations *= axis.values.size();
  std::vector<Spec> specs;
  for (std::size_t i = 0; i < combinations; ++i) {
    Node tree = root;
    std::string label;
    std::size_t below = combinations;  // the last axis changes fastest
    for (const Axis& axis : axes) {
      below /= axis.values.size();
      const Node& value = axis.values[i / below % axis.values.size()];
      KV_CHECK(put(tree, axis, value));
      label += fmt::format("{}{}={}", label.empty() ? "" : " ", axis.key, spelled(value));
    }
    KV_TRY(spec, read_spec(tree, file));
    spec.label = label;
    specs.push_back(std::move(spec));
  }
  return specs;
}

}  // namespace kvjit
