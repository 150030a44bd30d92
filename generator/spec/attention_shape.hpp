// AttentionShape: the sizes, types and options of an attention call. A spec states them once. Spec, Problem, DecodePlan
// and ProgramSource inherit them, so each stage of the pipeline copies all of them by one assignment.
// SPDX-License-Identifier: MIT
#pragma once
#include "generator/base/element.hpp"
#include "generator/spec/features.hpp"

namespace kvjit {

struct AttentionShape {
  int head_dim = 128;                   // values of a head of K, and of a query
  int head_dim_v = 0;                   // values of a head of V, and of an output row; 0: head_dim
  int q_heads_per_kv = 1;               // query heads that attend to one KV head (GQA)
  int query_length = 1;                 // query tokens of a sequence in one call; with varlen, at most
  bool varlen = false;                  // calls say how many queries each sequence has (query_length = "any")
  bool causal = false;                  // a query sees no token after its own
  FeatureSet features;                  // all but causal
  Element q_type = Element::f16;        // of queries
  Element out_type = Element::f32;      // of output rows
  Layout layout = Layout::planar;       // of the cache
  int page_tokens = 0;                  // tokens of a page of layout paged, a power of two; 0: no pages
  Layout page_layout = Layout::planar;  // rows or planar, inside a page
  int token_heads = 0;                  // token-major heads: KV heads of a token; 0: heads lie anywhere
  bool values_in_keys = false;          // each row of V is the first channels of K's row, in K's memory (v.in_keys)
  bool append = false;                  // a call brings K and V of its new tokens; decode stores and attends to them
  bool checks = false;                  // the device checks lengths, page tables and slots before it uses them
  double sparse_v = 0;  // V of tokens below this fraction of the largest probability may be skipped; 0: none is

  int v_dim() const { return head_dim_v > 0 ? head_dim_v : head_dim; }
  int dim(int side) const { return side == 0 ? head_dim : v_dim(); }  // 0 = K, 1 = V
  // Query rows of a KV head: one for each query of each of its query heads.
  int query_rows() const { return q_heads_per_kv * query_length; }
  // Whether codes and scales are in separate planes, of the cache or of each page.
  bool is_planar() const { return (page_tokens > 0 ? page_layout : layout) == Layout::planar; }
};

}  // namespace kvjit
