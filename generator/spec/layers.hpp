// [layers] and policies as files state them: which layer of a model stores its cache in which format. A spec with
// [layers] stands for one spec a layer. The rules of a policy (specs/policies/*.toml), then those of the spec itself,
// replace [k] and [v] of the layers that they apply to; a later rule wins. generator/resolve/layers.hpp expands them.
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

// How many layers a rule takes from one end of a model with `count` layers: a number, the parameter n, or a fraction.
struct LayerExtent {
  enum class Kind { number, parameter, fraction } kind = Kind::number;
  int number = 0;                      // kind number
  int numerator = 0, denominator = 1;  // fraction: max(minimum, ceil(numerator * count / denominator))
  int minimum = 0;                     // fraction: layers
};

struct LayerRule {
  Where where;
  std::optional<LayerExtent> first, last;  // layers from either end; with none of these and no `layers`: every layer
  std::vector<int> layers;                 // numbers of layers, from 0
  std::vector<Where> layers_where;
  std::vector<std::string> when_k,
      when_v;  // the rule applies only if the spec's own format is one of these (names or aliases); empty: any
  std::vector<Where> when_k_where, when_v_where;
  std::optional<SideSpec> k, v;  // the sides of these layers; at least one is there
};

// A file of specs/policies: name is the file's stem.
struct Policy {
  std::string name, title, source;
  int least_layers = 1;  // models with fewer layers are refused
  std::optional<int> n;  // default of the parameter n of its rules; absent: they have no parameter
  std::vector<LayerRule> rules;
};

// [layers] of a spec.
struct LayersSpec {
  Where where;
  int count = 0;
  std::string policy;  // name of a policy; "": none
  Where policy_where;
  std::optional<int> n;
  Where n_where;
  std::vector<LayerRule> rules;
};

// Reads the side of a rule (or of a row of specs/tuning) under `key`: "q8_0", or a table like [k]. Errors go to the
// table around it.
std::optional<SideSpec> read_named_side(schema::Table& rule, const char* key);

// Reads a file of specs/policies. Fails with bad_input.
Result<Policy> parse_policy(std::string_view toml_text, const std::string& file);

// Reads [layers] of a spec. Errors go to the table.
LayersSpec read_layers(schema::Table& table);

}  // namespace kvjit
