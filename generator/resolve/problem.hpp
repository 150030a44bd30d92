// Problem: a spec with every name resolved, for one arch. Clashes between its parts are errors here, with
// their place.
// SPDX-License-Identifier: MIT
#pragma once
#include <string>

#include "generator/catalogue/registry.hpp"
#include "generator/spec/attention_shape.hpp"
#include "generator/spec/spec.hpp"

namespace kvjit {

// `head_dim_v` is never 0 here.
struct Problem : AttentionShape {
  std::string id;  // readable and stable: "tbq4_wht_dfirst_corr-q8_0.d128.g4.q1.planar.causal.f16-f32"
  std::string title;
  Format k, v;
  bool fuse = true;  // rotations and merge in the attention kernel, where that is possible
  Arch arch;
  std::string dims() const {  // "128", "192x128"
    return std::to_string(head_dim) + (v_dim() == head_dim ? "" : "x" + std::to_string(v_dim()));
  }
  std::string device;  // "NVIDIA H200"; "": not known. Only which measured shapes serve depends on it
};

// "planar", "rows", "paged16" (of planes), "paged16.rows": in names of programs and kernels.
std::string layout_name(bool is_planar, int page_tokens);

// arch: which of the spec's archs (or the caller's choice). Fails with bad_input when head_dim is not a
// multiple of a format's block or of its rotation (names the key and the multiples that work), unknown names,
// unknown feature.
Result<Problem> resolve(const Spec& spec, const Registry& registry, const std::string& arch);

}  // namespace kvjit
