// parse_policy, read_layers: read policies and the table [layers] of a spec.
// SPDX-License-Identifier: MIT
#include "generator/spec/layers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "generator/base/schema.hpp"

namespace kvjit {
namespace {

using schema::Node;

constexpr int kMaxLayers = 1024;
constexpr schema::Range kCount{1, kMaxLayers}, kLayer{0, kMaxLayers - 1}, kExtent{0, kMaxLayers};

// Reports the error of a nested table as one of the table around it.
void pass_on(schema::Table& nested, schema::Table& outer) {
  if (Result<void> done = nested.done(); !done)
    outer.complain(done.error().where, done.error().message, done.error().notes, done.error().code);
}

// Reads a number of layers: 4, "n", or { fraction = [1, 3], minimum = 2 }.
std::optional<LayerExtent> read_extent(schema::Table& rule, const char* key) {
  rule.takes(key, Node::Kind::integer);
  rule.takes(key, Node::Kind::text, {"n"});
  rule.takes(key, Node::Kind::table);
  rule.takes_range(key, kExtent.low, kExtent.high);
  const Node* node = rule.find(key);
  if (!node) return {};
  LayerExtent extent;
  if (node->kind == Node::Kind::text && node->text == "n") {
    extent.kind = LayerExtent::Kind::parameter;
  } else if (node->kind == Node::Kind::table) {
    extent.kind = LayerExtent::Kind::fraction;
    schema::Table table(node, key, node->where);
    std::vector<int> fraction;
    table.require("fraction");
    table.read("fraction", fraction, {0, kMaxLayers});
    table.read("minimum", extent.minimum, kExtent);
    if (fraction.size() == 2 && fraction[1] > 0 && fraction[0] <= fraction[1])
      extent.numerator = fraction[0], extent.denominator = fraction[1];
    else if (table.find("fraction"))
      table.complain(table.where("fraction"),
                     "fraction must be a numerator and a denominator, together 0 to 1, like [1, 3]");
    pass_on(table, rule);
  } else if (node->kind == Node::Kind::integer) {
    rule.read(key, extent.number, kExtent);
  } else {
    rule.complain(node->where, fmt::format("{} must be a number of layers, \"n\", or a fraction", key),
                  {"for example 4, or { fraction = [1, 3], minimum = 2 }; \"n\" is the parameter n of [layers]"});
  }
  return extent;
}

std::vector<Where> item_places(schema::Table& table, const char* key) {
  std::vector<Where> places;
  if (const Node* list = table.find(key))
    for (const Node& item : list->items) places.push_back(item.where);
  return places;
}

}  // namespace

std::optional<SideSpec> read_named_side(schema::Table& rule, const char* key) {
  rule.takes(key, Node::Kind::text);
  rule.takes(key, Node::Kind::table);
  const Node* node = rule.find(key);
  if (!node) return {};
  if (node->kind == Node::Kind::table) {
    schema::Table table(node, fmt::format("{} of a rule", key), node->where);
    SideSpec side = read_side(table);
    pass_on(table, rule);
    return side;
  }
  SideSpec side;
  rule.read(key, side.format);
  side.where = side.key_where["format"] = node->where;
  return side;
}

namespace {

LayerRule read_rule(const Node& node, schema::Table& outer) {
  schema::Table table(&node, "a rule", node.where);
  LayerRule rule;
  rule.where = node.where;
  rule.first = read_extent(table, "first");
  rule.last = read_extent(table, "last");
  table.read("layers", rule.layers, kLayer);
  rule.layers_where = item_places(table, "layers");
  schema::Table when = table.table("when");
  when.read("k", rule.when_k);
  when.read("v", rule.when_v);
  rule.when_k_where = item_places(when, "k");
  rule.when_v_where = item_places(when, "v");
  pass_on(when, table);
  rule.k = read_named_side(table, "k");
  rule.v = read_named_side(table, "v");
  table.require("k", "v");
  pass_on(table, outer);
  return rule;
}

std::vector<LayerRule> read_rules(schema::Table& table) {
  std::vector<LayerRule> rules;
  table.takes_items("rule", Node::Kind::table);
  const Node* list = table.find("rule");
  if (!list) return rules;
  if (list->kind != Node::Kind::list)
    return table.complain(list->where, "rule must be a list of tables: [[rule]]"), rules;
  for (const Node& node : list->items) rules.push_back(read_rule(node, table));
  return rules;
}

}  // namespace

Result<Policy> parse_policy(std::string_view toml_text, const std::string& file) {
  KV_TRY(root, schema::parse(toml_text, file));
  schema::Table top(&root, "a policy", {file});
  Policy policy;
  policy.name = std::filesystem::path(file).stem().string();
  for (const char* key : {"title", "rule"}) top.require(key);
  top.read("title", policy.title);
  top.read("source", policy.source);
  top.read("least_layers", policy.least_layers, kCount);
  top.read("n", policy.n, kExtent);
  policy.rules = read_rules(top);
  KV_CHECK(top.done());
  return policy;
}

LayersSpec read_layers(schema::Table& table) {
  LayersSpec layers;
  layers.where = table.where();
  table.require("count");
  table.read("count", layers.count, kCount);
  table.read("policy", layers.policy);
  table.read("n", layers.n, kExtent);
  layers.policy_where = table.where("policy");
  layers.n_where = table.where("n");
  layers.rules = read_rules(table);
  return layers;
}

}  // namespace kvjit
