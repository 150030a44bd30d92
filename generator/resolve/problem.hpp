// Problem: a spec with every name resolved, for one arch. Clashes between its parts are errors here, with
// their place.
// SPDX-License-Identifier: MIT
#pragma once
#include <string>

#include "generator/catalogue/registry.hpp"
#include "generator/spec/features.hpp"
#include "generator/spec/spec.hpp"

namespace kvjit {

struct Problem {
  std::string id;  // readable and stable: "tbq4_wht_dfirst_corr-q8_0.d128.g4.q1.planar.causal.f16-f32"
  std::string title;
  Format k, v;
  int head_dim = 0, head_dim_v = 0;  // of K and queries; of V and the output (0: the same)
  int q_heads_per_kv = 0, query_length = 0;
  bool causal = false;
  FeatureSet features;  // all but causal
  Element q_type = Element::f16, out_type = Element::f32;
  Layout layout = Layout::planar;
  int page_tokens = 0;  // of layout paged, else 0
  Layout page_layout = Layout::planar;
  int token_heads = 0;  // KV heads of a token that lie side by side, all of them; 0: heads lie anywhere
  bool fuse = true, checks = false;
  double sparse_v = 0;
  bool append = false;
  Arch arch;
  int dim(int side) const { return side == 0 ? head_dim : v_dim(); }  // 0 = K, 1 = V
  int v_dim() const { return head_dim_v > 0 ? head_dim_v : head_dim; }
  std::string dims() const {  // "128", "192x128"
    return std::to_string(head_dim) + (v_dim() == head_dim ? "" : "x" + std::to_string(v_dim()));
  }
  // Whether codes and scales lie apart, in planes: of the cache, or of each page.
  bool is_planar() const { return (layout == Layout::paged ? page_layout : layout) == Layout::planar; }
  std::string device;  // "NVIDIA H200"; "": not known. Only which measured shapes serve depends on it
};

// "planar", "rows", "paged16" (of planes), "paged16.rows": in names of programs and kernels.
std::string layout_name(bool is_planar, int page_tokens);

// arch: which of the spec's archs (or the caller's choice). Fails with bad_input when head_dim is not a
// multiple of a format's block or of its rotation (names the key and the multiples that work), unknown names,
// unknown feature.
Result<Problem> resolve(const Spec& spec, const Registry& registry, const std::string& arch);

}  // namespace kvjit
