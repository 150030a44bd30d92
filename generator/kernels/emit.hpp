// emit: plans -> Source. The only files that spell CUDA text: banners, tables, constants, aliases, unpack
// sequences and one entry. What executes is in templates/, inlined whole, so a Source is flat, self-contained
// and free of #include.
// SPDX-License-Identifier: MIT
#pragma once
#include "generator/catalogue/registry.hpp"
#include "generator/kernels/decode/plan.hpp"
#include "generator/source.hpp"

namespace kvjit {

Source emit_decode(const DecodePlan& plan, const Registry& registry);
Source emit_merge(const DecodePlan& plan, const Registry& registry);  // of plans that leave parts
Source emit_rotate(const Problem& problem, bool is_inverse, const Registry& registry);
Source emit_reference(const Problem& problem, const Registry& registry);
Source emit_merge_contexts(const Problem& problem, const Registry& registry);  // of features with lse

struct CodecPlan {
  Format format;
  int head_dim = 0;
  bool is_planar = false, is_quantize = true;
  int page_tokens = 0;  // of layout paged, else 0
  bool checks = false;
  std::string arch;
  std::string slots = {};  // kernels by slots: the type of their numbers; "": of the tokens from one on
  std::string layout() const {
    return layout_name(is_planar, page_tokens) + (slots.empty() ? "" : "." + slots) + (checks ? ".checked" : "");
  }
};
Source emit_codec(const CodecPlan& plan, const Registry& registry);

// Quantizing or dequantizing many rows at once; the general kernels serve the rest.
Source emit_tiles(const CodecPlan& codec, const TilePlan& plan, const TileKernel& kernel, const TileCall& call,
                  const Registry& registry);
// What looks at a checked call first.
Source emit_check(const std::string& arch, const Registry& registry);

// Reads bytes and does nothing with them. unroll: 16-byte loads under way in a lane.
Source emit_probe(int unroll, const std::string& arch, const Registry& registry);

}  // namespace kvjit
