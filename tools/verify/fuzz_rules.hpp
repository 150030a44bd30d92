// What a random spec is made of, what the library must refuse of it by the rules of README "Spec file" and "Limits of
// decode", and what it then says. Internal to fuzz.cpp.
// SPDX-License-Identifier: MIT
#pragma once
#include <string>
#include <vector>

#include "generator/catalogue/registry.hpp"
#include "generator/spec/spec.hpp"

namespace kvjit::fuzz {

constexpr int kMostHeadRows = 8;  // of a head that is taken together with the others of its token

// One side of a spec.
struct SideWish {
  std::string toml;
  const Format* named = nullptr;  // null: made of numbers
  int block = 0, dim = 0;
  // The format as it is stored, if heads of that size can be.
  Result<Format> stored(const Registry& registry) const {
    return named ? registry.format_for(named->name, dim, {}) : fail(Code::internal, "numbers have no name");
  }
  // Values of a head as attention has them.
  int inner_dim(const Registry& registry) const {
    const auto format = stored(registry);
    return format ? format->inner_dim(dim) : dim;
  }
};

// A spec.
struct Draw {
  SideWish k, v;
  int gqa = 1, queries = 1;
  Layout layout = Layout::rows, page_layout = Layout::planar;
  int page_tokens = 0, token_heads = 0;
  bool causal = false, alibi = false, mask = false, mask_slopes = false, packed_mask = false, position_offset = false;
  bool sinks = false, lse = false, append = false, fuse = true, checks = false;
  double softcap = 0, sparse_v = 0;
  std::vector<int> window;
  std::string q_type, out_type, arch;

  bool is_of_rows() const { return (layout == Layout::paged ? page_layout : layout) == Layout::rows; }
  bool has_features() const {
    return alibi || mask || mask_slopes || packed_mask || position_offset || sinks || lse || softcap > 0 ||
           !window.empty();
  }
  std::string toml() const;
};

// Whether heads of its size can be stored.
bool is_storable(const SideWish& side, const Registry& registry);
// Warps share the output by halves, and of more than 512 values only multiples of that split so.
bool is_too_wide(const SideWish& v, const Registry& registry);
// Whether the front of K's rows is a row of V.
bool can_be_front(const SideWish& v, const SideWish& k, const Registry& registry);
// Whether so many heads of a token can be taken together (cache.token_heads), and surely have room in a block.
bool can_take_heads(const Draw& draw, int heads, const Registry& registry);

// What the library may say when it refuses the spec, as it must then; and what it may say as well, where how much a
// plan needs decides.
std::vector<std::string> refusals(const Draw& draw, const Registry& registry);
std::vector<std::string> limits(const Draw& draw, const Registry& registry);

}  // namespace kvjit::fuzz
