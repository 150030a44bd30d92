// Source: the text of one kernel and the facts its launch needs. The only thing the runtime takes from the generator.
// SPDX-License-Identifier: MIT
#pragma once
#include <map>
#include <string>
#include <vector>

#include "args/attention.cuh"
#include "generator/base/text.hpp"
#include "generator/catalogue/timing.hpp"
#include "generator/spec/attention_shape.hpp"

namespace kvjit {

// A choice the planner made, why, and what it rejected. `explain` prints these.
struct Decision {
  std::string what, choice, why;
  std::vector<std::string> rejected;  // "candidate: reason"
};

struct Source {
  std::string name;      // "decode.tbq4_wht_dfirst_corr-q8_0.d128.g4.sm_90a": log lines, file names (only [a-z0-9_.-])
  std::string entry;     // the extern "C" kernel in it
  std::string arch;      // "sm_90a", with its real suffix
  Text text;             // flat, self-contained CUDA C++
  int threads = 0;       // a block
  int shared_bytes = 0;  // dynamic, a block
  int args_bytes = 0;    // size of the one struct the entry takes
  bool may_overlap = false;  // waits for the launch ahead of it itself, so it may be launched before that has ended
  int row_threads = 32;      // threads that share a row
  int tiles = 0;             // kernels over tiles of 16 rows: tiles the warps of a block take at a time
};

// The kernels of one attention call and its cache.
enum class Role {
  rotate_q,    // Q before: of `reference`, and of `decode` unless that rotates itself
  decode,      // attention over the cache
  merge,       // its partial results by log-sum-exp, where it does not do that itself
  rotate_out,  // the output after: as rotate_q
  reference,   // the readable one, same inputs as decode, one launch, no split
  quantize_k,
  quantize_v,
  dequantize_k,
  dequantize_v,
  // Many rows at once, of each type, where format and arch allow; in the order of bulk_role().
  quantize_bulk_k_f16,
  quantize_bulk_k_bf16,
  quantize_bulk_k_f32,
  quantize_bulk_v_f16,
  quantize_bulk_v_bf16,
  quantize_bulk_v_f32,
  dequantize_bulk_k_f16,
  dequantize_bulk_k_bf16,
  dequantize_bulk_k_f32,
  dequantize_bulk_v_f16,
  dequantize_bulk_v_bf16,
  dequantize_bulk_v_f32,
  merge_contexts,  // outputs over parts of a context, of programs that give the logarithm of sums
  check,           // of checked programs: looks at lengths, page tables and slots ahead of each call
};
const char* to_string(Role role);
constexpr Role bulk_role(bool is_quantize, bool is_key, kv::RowType type) {
  return Role(int(Role::quantize_bulk_k_f16) + (is_quantize ? 0 : 6) + (is_key ? 0 : 3) + int(type) -
              int(kv::RowType::f16));
}

// Bytes of one side of the cache, a (token, KV head) row.
struct SideInfo {
  std::string format;
  bool is_transformed = false;    // attention's domain is not the caller's: rotated, padded, scaled by channel
  long long row_bytes = 0;        // layout rows: whole blocks
  long long code_row_bytes = 0;   // layout planar: the codes plane
  long long scale_row_bytes = 0;  // layout planar: the scales plane, 0 if the format has no scale
  double bits_per_value = 0;
  int rotated_dim = 0;  // values a head has in attention's domain
  bool has_tensor_scale = false;
};

// A program as text: what `kvjit emit` writes and what the runtime compiles and launches.
struct ProgramSource : AttentionShape {
  std::string id, title, arch;
  int rows = 0,
      query_chunks = 1;  // of q_heads_per_kv * query_length query rows, those that a block takes at once; and how often
                         // (of token_heads, rows of all heads)
  int tile_tokens = 0;   // granule in which blocks share the tokens
  // What `decode` does beside attention. What it finishes, or leaves for `merge`, is rotated by the one that makes rows
  // of output of it.
  bool rotates_queries = false, fuses_merge = false, rotates_output = false;
  int merge_steps = 1;  // where it finishes: of 128 sums of a row, that a warp takes for the parts of a pair; above 1
                        // `merge` may do it
  SchedulerTiming timing;  // of the arch
  SideInfo k, v;
  std::map<Role, Source> kernels;
  std::vector<Decision> decisions;
};

}  // namespace kvjit
