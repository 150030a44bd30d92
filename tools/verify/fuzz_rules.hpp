// Draw: the values of a random spec. refusals and limits: the rules by which the library refuses specs, as substrings
// of its messages. The rules are those of specs/docs/spec.md, "Limits of decode", and of features that exclude each
// other. Only fuzz.cpp includes this file.
// SPDX-License-Identifier: MIT
#pragma once
#include <string>
#include <vector>

#include "generator/catalogue/registry.hpp"
#include "generator/spec/spec.hpp"

namespace kvjit::fuzz {

constexpr int kMostHeadRows = 8;  // most query rows of a head with token-major heads

// One side of a spec, K or V.
struct SideWish {
  std::string toml;               // the keys of [k] or [v]
  const Format* named = nullptr;  // the format that the spec names; null: an inline format
  int block = 0;                  // values of a block
  int dim = 0;                    // channels of a head
  // The named format for heads of `dim` channels; an error if it cannot store these.
  Result<Format> stored(const Registry& registry) const {
    return named ? registry.format_for(named->name, dim, {}) : fail(Code::internal, "numbers have no name");
  }
  // Values of a head that attention computes with: more than dim if the format pads heads or adds a residual.
  int rotated_dim(const Registry& registry) const {
    const auto format = stored(registry);
    return format ? format->rotated_dim(dim) : dim;
  }
};

// The members are the keys of a spec file (specs/docs/spec.md).
struct Draw {
  SideWish k;
  SideWish v;
  int gqa = 1;          // q_heads_per_kv
  int queries = 1;      // query_length; with varlen, max_query_length
  bool varlen = false;  // query_length = "any"
  Layout layout = Layout::rows;
  Layout page_layout = Layout::planar;
  int page_tokens = 0;
  int token_heads = 0;  // token-major heads (cache.token_heads); 0: none
  bool causal = false;
  bool alibi = false;
  bool mask = false;
  bool mask_slopes = false;
  bool packed_mask = false;
  bool token_ranges = false;
  bool position_offset = false;
  bool sinks = false;
  bool lse = false;
  bool append = false;
  bool fuse = true;
  bool checks = false;
  double softcap = 0;       // 0: none
  double sparse_v = 0;      // 0: none
  std::vector<int> window;  // tokens to the left and to the right; empty: none
  std::string q_type;
  std::string out_type;
  std::string arch;  // empty: the spec names none

  // Whether rows are whole blocks, in pages or not.
  bool is_of_rows() const { return (layout == Layout::paged ? page_layout : layout) == Layout::rows; }
  bool has_features() const {
    return alibi || mask || mask_slopes || packed_mask || token_ranges || position_offset || sinks || lse ||
           softcap > 0 || !window.empty();
  }
  std::string toml() const;
};

// Whether the format can store heads of this size.
bool is_storable(const SideWish& side, const Registry& registry);
// Whether an output row has more than 512 values and cannot be divided among warps: warps halve it, and above 512
// values only multiples of 512 can be halved.
bool is_too_wide(const SideWish& v, const Registry& registry);
// Whether the first bytes of K's rows can be V's rows.
bool can_be_front(const SideWish& v, const SideWish& k, const Registry& registry);
// Whether a block can take `heads` token-major heads (cache.token_heads), and they certainly fit it.
bool can_take_heads(const Draw& draw, int heads, const Registry& registry);

// Substrings of the messages by which the library must refuse the spec; empty: the library must accept it.
std::vector<std::string> refusals(const Draw& draw, const Registry& registry);
// Substrings of messages by which the library may refuse the spec, depending on the memory of the plan.
std::vector<std::string> limits(const Draw& draw, const Registry& registry);

}  // namespace kvjit::fuzz
