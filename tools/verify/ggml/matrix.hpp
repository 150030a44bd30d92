// ggml_matrix lists the cases of ggml's FLASH_ATTN_EXT tests (tests/test-backend-ops.cpp of llama.cpp, snapshot
// d99724f2) as specs: the shapes and features with which an engine may call this operator. run.hpp executes them,
// sample.hpp chooses a few of them.
// SPDX-License-Identifier: MIT
#pragma once
#include <string>
#include <vector>

namespace kvjit {

struct GgmlCase {
  int head_dim_k = 0;  // channels as the case names them; types with blocks store whole blocks
  int head_dim_v = 0;
  int kv_heads = 0;
  int gqa = 1;      // query heads of a KV head; in ggml the repeats of dimension 2
  int repeats = 1;  // sequences of Q for each sequence of K and V; in ggml the repeats of dimension 3
  int tokens = 0;   // tokens of K and V
  int batch = 0;    // queries of a sequence
  bool has_mask = false;
  bool has_sinks = false;
  float max_bias = 0;                 // max_bias of the ALiBi slopes; 0: no ALiBi
  float softcap = 0;                  // 0: none
  bool is_default_precision = false;  // false: the case requests f32; kvjit has one precision
  std::string k;                      // ggml's type of K, which is a name or an alias of kvjit's format
  std::string v;
  bool is_permuted = false;  // heads lie inside tokens
  bool v_is_view = false;    // V's rows are the first bytes of K's rows
  bool is_dense = false;     // K and V fill their buffers; false: the buffers are twice as large

  int stored_dim(int side) const;  // channels in whole blocks; side 0 is K, 1 is V
  std::string toml() const;        // the spec: layout rows, q and output f32, no [target]
  std::string name() const;
  // The case whose program can serve this one too. That program has sinks, which a call may leave out, and slopes,
  // which may be 1.
  GgmlCase served_by() const;
};

// All cases; kvjit has all their types.
std::vector<GgmlCase> ggml_matrix();
constexpr int kGgmlCases = 5158;  // cases of ggml_matrix

}  // namespace kvjit
