// Layers, as files say it: which layer of a model keeps its cache in which format. A spec with [layers] stands for one
// spec a layer. Rules of a policy (specs/policies/*.toml), then rules of the spec itself, replace [k] and [v] where
// they apply; a later rule wins. generator/resolve/layers.hpp expands them.
// SPDX-License-Identifier: MIT
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "generator/base/result.hpp"
#include "generator/spec/spec.hpp"

namespace kvjit {

namespace schema {
class Table;
}

// How many layers a rule takes from one end of `count` layers.
struct LayerExtent {
  enum class Kind { number, parameter, fraction } kind = Kind::number;
  int number = 0;                      // number
  int numerator = 0, denominator = 1;  // fraction: max(minimum, ceil(numerator * count / denominator))
  int minimum = 0;
};

struct LayerRule {
  Where where;
  std::optional<LayerExtent> first, last;  // neither, and no `layers`: every layer
  std::vector<int> layers;                 // by number, from 0
  std::vector<Where> layers_where;
  std::vector<std::string> when_k,
      when_v;  // only if the spec's own format is one of these (names or aliases); empty: any
  std::vector<Where> when_k_where, when_v_where;
  std::optional<SideSpec> k, v;  // what they become; at least one
};

// A file of specs/policies: name is the file's stem.
struct Policy {
  std::string name, title, source;
  int least_layers = 1;  // models with fewer layers are refused
  std::optional<int> n;  // default of the parameter "n" of its rules; none: they have no parameter
  std::vector<LayerRule> rules;
};

// [layers] of a spec.
struct LayersSpec {
  Where where;
  int count = 0;
  std::string policy;  // "" : none
  Where policy_where;
  std::optional<int> n;
  Where n_where;
  std::vector<LayerRule> rules;
};

// The side of a rule (or of a row of specs/tuning) under `key`: "q8_0", or a table like [k]. Complaints go to the table
// around it.
std::optional<SideSpec> read_named_side(schema::Table& rule, const char* key);

Result<Policy> parse_policy(std::string_view toml_text, const std::string& file);

// Of a spec's [layers]; complaints go to the table.
LayersSpec read_layers(schema::Table& table);

}  // namespace kvjit
