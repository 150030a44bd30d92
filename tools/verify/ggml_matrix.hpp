// The case matrix of ggml's FLASH_ATTN_EXT tests (tests/test-backend-ops.cpp of llama.cpp, snapshot d99724f2) as specs:
// what an engine that calls that operator may ask for.
// SPDX-License-Identifier: MIT
#pragma once
#include <string>
#include <vector>

namespace kvjit {

struct GgmlCase {
  int head_dim_k = 0, head_dim_v = 0;  // as the case names them; types with blocks store whole blocks
  int kv_heads = 0, gqa = 1;           // of the second dimension
  int repeats = 1;                     // sequences of Q that share one of K and V (the third)
  int tokens = 0, batch = 0;           // batch: queries of a sequence
  bool has_mask = false, has_sinks = false;
  float max_bias = 0, softcap = 0;
  bool is_default_precision = false;  // f32 otherwise; kvjit has one
  std::string k, v;                   // names of types, which are those of kvjit's formats
  bool is_permuted = false;           // heads lie inside tokens
  bool v_is_view = false;             // V is the front of K's rows
  bool is_dense = false;              // K and V fill their buffers; else those are twice as large

  int stored_dim(int side) const;  // 0 = K, 1 = V; of whole blocks
  std::string toml() const;        // layout rows, Q and output of f32, no [target]
  std::string name() const;
  // The case whose program serves this one too: with sinks, which a call may leave out, and slopes, which may be 1.
  GgmlCase served_by() const;
};

// All cases whose types kvjit has.
std::vector<GgmlCase> ggml_matrix();
constexpr int kGgmlCases = 5158, kGgmlCasesOfOtherTypes = 8;  // q1_0, q2_0

}  // namespace kvjit
