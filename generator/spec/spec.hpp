// Spec: an attention problem as the user wrote it in TOML. Names are not resolved yet. specs/docs/spec.md is the
// reference of its keys.
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

// Reads the table of one side: [k], [v], or the side of a rule of [layers]. Errors go to the table.
SideSpec read_side(schema::Table& table);

struct Spec : AttentionShape {
  std::string file;         // the caller's name of the file, for diagnostics
  std::string label;        // the combination of [matrix], and the layers: "k.bits=3 layer=7"; or ""
  std::string layer_label;  // the end of label: "layer=7", "layers=0-3,32-35"; or ""
  std::string title;
  SideSpec k, v;
  std::string hook;                          // a name of specs/hooks, which resolve looks up; empty: none
  bool fuse = true;                          // rotations and merge are in the attention kernel, where possible
  std::vector<std::string> archs;            // empty: that of the present GPU
  std::shared_ptr<const LayersSpec> layers;  // [layers], not expanded (expand_layers); null: all layers are equal
  std::map<std::string, Where> key_where;    // the place of each key that is written: "attention.head_dim"

  int dim_of(const std::string& side) const { return side == "v" ? v_dim() : head_dim; }  // "k" or "v"
  Where where_of_dim(const std::string& side) const;  // the place of head_dim_k or head_dim_v, or else of head_dim
  Where where(const std::string& key) const;          // the place of a dotted key, or the file
};

// Parses a spec. [matrix] expands to the cross product of its lists, in the order of the file (last key fastest), so
// the result has at least one Spec. `file` is used in diagnostics only. Fails with bad_input: TOML syntax, an unknown
// key (with a suggestion), a wrong type, a number out of range.
Result<std::vector<Spec>> parse_specs(std::string_view toml_text, const std::string& file);

}  // namespace kvjit
