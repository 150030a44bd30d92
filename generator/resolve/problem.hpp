// Problem: a spec with all names resolved, for one arch. resolve makes it, and rejects combinations that do not work
// with an error that has their place in the spec.
// SPDX-License-Identifier: MIT
#pragma once
#include <string>

#include "generator/catalogue/registry.hpp"
#include "generator/spec/attention_shape.hpp"
#include "generator/spec/spec.hpp"

namespace kvjit {

// The shape is that of the spec, but `head_dim_v` is never 0.
struct Problem : AttentionShape {
  std::string id;  // problem_id: readable and stable: "tbq4_wht_dfirst_corr-q8_0.d128.g4.q1.planar.causal.f16-f32"
  std::string title;
  Format k, v;
  bool fuse = true;  // rotations and merge in the attention kernel, where that is possible
  Arch arch;
  std::string dims() const {  // "128", "192x128"
    return std::to_string(head_dim) + (v_dim() == head_dim ? "" : "x" + std::to_string(v_dim()));
  }
  std::string device;  // "NVIDIA H200", or "" if unknown; only the choice of a measured block shape depends on it
};

// The layout in names of programs and kernels: "planar", "rows", "paged16" (pages of planar rows), "paged16.rows".
std::string layout_name(bool is_planar, int page_tokens);

// The id of a problem, from its other members.
std::string problem_id(const Problem& problem);

// Resolves a spec for one arch, which is one of the spec's or the caller's choice. Fails with bad_input: a name that is
// unknown; a head_dim that is no multiple of a format's block or rotation (the error names the key and multiples that
// work); features that contradict each other. Fails with unsupported: [layers]; heads that lanes cannot divide.
Result<Problem> resolve(const Spec& spec, const Registry& registry, const std::string& arch);

}  // namespace kvjit
