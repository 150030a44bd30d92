// Node: an attention of a ggml graph (FLASH_ATTN_EXT), as a call of kvjit sees it.
//
//   q     [head_dim_k, queries, heads, sequences]   f32
//   k, v  [head_dim, tokens, kv_heads, sequences]   any format; rows of the cache with free strides
//   mask  [tokens, queries, 1 or heads, 1 or sequences]   f16, added to the scores; it may be missing
//   out   [head_dim_v, heads, queries, sequences]   f32
// SPDX-License-Identifier: MIT
#pragma once
#include <compare>
#include <optional>
#include <string>

#include "ggml-backend-impl.h"
#include "kvjit.h"

namespace kvjit::plugin {

struct Node {
  const ggml_tensor *q, *k, *v, *mask, *sinks, *out;
  float scale, max_bias, softcap;
  int queries() const { return int(q->ne[1]); }
  int heads() const { return int(q->ne[2]); }
  int kv_heads() const { return int(k->ne[2]); }
  int tokens() const { return int(k->ne[1]); }
  int sequences() const { return int(q->ne[3]); }
};

// The attention of a node of a graph; nothing if the node is something else.
std::optional<Node> read_node(const ggml_tensor* tensor);

// Why no program is asked for such a node; "" if one may be.
std::string misfit(const Node& node);

// Whether the heads of a token lie side by side, as a program with token_heads needs (runtime/docs/caches.md).
bool has_token_heads(const Node& node);

// Instead of a number of queries: a program for any number of them, up to kMostQueries in a call.
constexpr int kAnyQueries = 0, kMostQueries = 4096;

// How a program reads the cache, as the policy wants it (policy.toml).
struct Reading {
  bool token_heads = false;   // all heads of a token at once
  bool token_ranges = false;  // only tokens that the mask shows
  auto operator<=>(const Reading&) const = default;
};

// The spec of the program that takes `queries` queries of the node at once. Equal texts are equal programs.
std::string spec_of(const Node& node, int queries, const Reading& reading);

// The arguments of a call over the queries [first, first + count). Slopes, workspace and stream are left to the caller.
kvjit_attention_call call_of(const Node& node, int first, int count);

// The node in few words, for messages: "q4_0, q4_0, heads of 128, 32 / 8, 1 query over 4096 tokens".
std::string describe(const Node& node);

}  // namespace kvjit::plugin
