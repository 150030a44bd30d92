// Reads policies: see policy.hpp.
// SPDX-License-Identifier: MIT
#include "policy.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>
#define TOML_EXCEPTIONS 0
#include <toml++/toml.h>

#include "embedded_policy.hpp"
#include "settings.hpp"

namespace kvjit::plugin {
namespace {

std::string place_of(const toml::node& node, const std::string& file) {
  return fmt::format("{}:{}", file, node.source().begin.line);
}

// Each returns whether the key of a rule is there and right; else it says in `why` what is wrong.
bool read_types(const toml::table& rule, const char* key, const std::string& file, std::vector<std::string>& types,
                std::string& why) {
  const toml::array* const list = rule[key].as_array();
  if (!list || list->empty()) return why = fmt::format("{}: {} is no list of types", place_of(rule, file), key), false;
  for (const toml::node& item : *list) {
    const auto name = item.value<std::string>();
    if (!name) return why = fmt::format("{}: a type is no string", place_of(item, file)), false;
    types.push_back(*name);
  }
  return true;
}

bool read_range(const toml::table& rule, const char* key, const std::string& file, Range& range, std::string& why) {
  const toml::array* const pair = rule[key].as_array();
  const auto least = pair && pair->size() == 2 ? pair->get(0)->value<long long>() : std::nullopt,
             most = pair && pair->size() == 2 ? pair->get(1)->value<long long>() : std::nullopt;
  if (!least || !most || *least > *most)
    return why = fmt::format("{}: {} is no pair [least, most]", place_of(rule, file), key), false;
  range = {*least, *most};
  return true;
}

// A flag may be missing.
bool read_flag(const toml::table& rule, const char* key, const std::string& file, bool& flag, std::string& why) {
  const toml::node* const node = rule.get(key);
  if (node && !node->is_boolean())
    return why = fmt::format("{}: {} is neither true nor false", place_of(*node, file), key), false;
  flag = rule[key].value_or(false);
  return true;
}

}  // namespace

std::optional<Policy> Policy::read(const std::string& toml, const std::string& file, std::string& why) {
  const toml::parse_result parsed = toml::parse(toml, file);
  if (!parsed) {
    why = fmt::format("{}:{}: {}", file, parsed.error().source().begin.line, parsed.error().description());
    return std::nullopt;
  }
  const toml::table& table = parsed.table();
  for (const auto& [key, value] : table)
    if (key != "rule") return why = fmt::format("{}: {} is no key", place_of(value, file), key.str()), std::nullopt;
  Policy policy;
  const toml::array* const rules = table["rule"].as_array();
  if (table.contains("rule") && !rules) return why = file + ": rule is no list of tables ([[rule]])", std::nullopt;
  const std::set<std::string> keys = {"k", "v", "queries", "tokens", "head_dim", "token_heads", "token_ranges"};
  for (std::size_t i = 0; rules && i < rules->size(); ++i) {
    const toml::table* const one = rules->get(i)->as_table();
    if (!one) return why = file + ": a rule is no table", std::nullopt;
    for (const auto& [key, value] : *one)
      if (!keys.count(std::string(key.str())))
        return why = fmt::format("{}: {} is no key of a rule", place_of(value, file), key.str()), std::nullopt;
    Rule rule;
    if (!read_types(*one, "k", file, rule.k, why) || !read_types(*one, "v", file, rule.v, why) ||
        !read_range(*one, "queries", file, rule.queries, why) || !read_range(*one, "tokens", file, rule.tokens, why) ||
        !read_range(*one, "head_dim", file, rule.head_dim, why))
      return std::nullopt;
    if (!read_flag(*one, "token_heads", file, rule.reading.token_heads, why) ||
        !read_flag(*one, "token_ranges", file, rule.reading.token_ranges, why))
      return std::nullopt;
    policy.rules_.push_back(std::move(rule));
  }
  return policy;
}

std::optional<Policy> Policy::choose(std::string& why) {
  const char* const file = std::getenv("KVJIT_GGML_POLICY");
  if (!file || !*file) return read(kEmbeddedPolicy, "policy.toml", why);
  std::ifstream stream(file, std::ios::binary);
  std::stringstream text;
  text << stream.rdbuf();
  if (!stream) return why = fmt::format("KVJIT_GGML_POLICY: cannot read {}", file), std::nullopt;
  return read(text.str(), file, why);
}

const Policy::Rule* Policy::rule_of(const Node& node) const {
  const auto has = [](const std::vector<std::string>& types, const ggml_tensor* side) {
    return std::find(types.begin(), types.end(), ggml_type_name(side->type)) != types.end();
  };
  const auto at = std::find_if(rules_.begin(), rules_.end(), [&](const Rule& rule) {
    return has(rule.k, node.k) && has(rule.v, node.v) && rule.queries.has(node.queries()) &&
           rule.tokens.has(node.tokens()) && rule.head_dim.has(node.k->ne[0]) && rule.head_dim.has(node.v->ne[0]);
  });
  return at == rules_.end() ? nullptr : &*at;
}

Reading Policy::reading_of(const Node& node) const {
  const Rule* const rule = rule_of(node);
  Reading reading = rule ? rule->reading : Reading{};
  if (reading.token_heads) reading.token_heads = has_token_heads(node);
  if (!node.mask) reading.token_ranges = false;
  return reading;
}

const Policy& policy() {
  static const Policy* const policy = [] {  // never destroyed: ggml's threads may outlive the statics
    std::string why;
    if (const auto chosen = Policy::choose(why)) return new Policy(*chosen);
    say(why + "; only nodes that the device refuses are taken");
    return new Policy();
  }();
  return *policy;
}

}  // namespace kvjit::plugin
