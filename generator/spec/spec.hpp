// Spec: what the user wants, as written in TOML, names not yet resolved. specs/docs/spec.md is its reference.
// SPDX-License-Identifier: MIT
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "generator/base/result.hpp"
#include "generator/formats/side_spec.hpp"
#include "generator/spec/attention_shape.hpp"

namespace kvjit {

struct LayersSpec;  // generator/spec/layers.hpp
namespace schema {
class Table;
}

// One side's table: [k] or [v], or what a rule of [layers] puts there. Complaints go to the table.
SideSpec read_side(schema::Table& table);

struct Spec : AttentionShape {
  std::string file;         // as given by the caller, for diagnostics
  std::string label;        // "" or "k.bits=3 layer=7": which combination of [matrix], and which layers, this is
  std::string layer_label;  // "" or the end of label: "layer=7", "layers=0-3,32-35"
  std::string title;
  SideSpec k, v;
  std::string hook;                          // a name of specs/hooks, which resolve looks up; empty: none
  bool fuse = true;                          // rotations and merge in the attention kernel, where that is possible
  std::vector<std::string> archs;            // empty: the present GPU
  std::shared_ptr<const LayersSpec> layers;  // [layers], not yet expanded (expand_layers); null: every layer is alike
  std::map<std::string, Where> key_where;    // "attention.head_dim" -> place; absent keys are absent

  int dim_of(const std::string& side) const { return side == "v" ? v_dim() : head_dim; }  // "k" or "v"
  Where where_of_dim(const std::string& side) const;  // place of head_dim_v if it is written, else of head_dim
  Where where(const std::string& key) const;          // place of a dotted key, or the file
};

// Parses a spec. [matrix] expands into the cross product of its lists, in the order written (last key fastest), so the
// result has at least one Spec. `file` is only used in diagnostics. Fails with bad_input: TOML syntax, unknown key
// (with a did-you-mean), wrong type, out-of-range number (bits 1..8, head_dim 16..1024, q_heads_per_kv 1..256,
// query_length 1..65536, block a power of two 16..1024).
Result<std::vector<Spec>> parse_specs(std::string_view toml_text, const std::string& file);

}  // namespace kvjit
