// Source and ProgramSource, the output of the generator: the text of each kernel, and the numbers that its launch
// needs. The runtime takes them, and compiles and launches the kernels.
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

// A choice of a planner, its reason, and the candidates that it rejected. `kvjit explain` prints decisions.
struct Decision {
  std::string what, choice, why;
  std::vector<std::string> rejected;  // "candidate: reason"
};

// One kernel.
struct Source {
  std::string name;      // "decode.tbq4_wht_dfirst_corr-q8_0.d128.g4.sm_90a": log lines, file names (only [a-z0-9_.-])
  std::string entry;     // the name of its extern "C" function
  std::string arch;      // "sm_90a", with the suffix that the compiler takes
  Text text;             // flat, self-contained CUDA C++
  int threads = 0;       // of a block
  int shared_bytes = 0;  // dynamic shared memory of a block
  int args_bytes = 0;    // size of the one struct that the entry takes
  bool may_overlap =
      false;             // it waits for the previous kernel itself, so it may be launched before that has ended (PDL)
  int row_threads = 32;  // threads that share a row
  int tiles = 0;         // kernels over tiles of 16 rows: tiles that a block takes at a time
};

// The kernels of one attention call and its cache.
enum class Role {
  rotate_q,    // rotates Q ahead of `reference`, and of `decode` unless that fuses it
  decode,      // attention over the cache
  prefill,     // attention of many query rows, in place of `decode` where its work tiles fill the device
  merge,       // merges the KV splits of `decode`, for calls in which that does not
  rotate_out,  // rotates the output after `reference`, and after `decode` and `merge` unless they fuse it
  reference,   // the readable kernel: the inputs of `decode`, one launch, no KV splits
  quantize_k,
  quantize_v,
  dequantize_k,
  dequantize_v,
  // Bulk forms for rows of each element type, where format and arch allow them; in the order of bulk_role().
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
  merge_contexts,  // programs with the feature lse: merges outputs over parts of a context
  mask_ranges,     // programs with the features mask and token_ranges: finds the ranges that a mask shows
  check,           // checked programs: checks lengths, page tables and slots before each call
  // The first pass of prefill in two passes: a chunk of a side to halves. The second is in ProgramSource::second_pass.
  dequantize_chunk_k,
  dequantize_chunk_v,
  append_k,
  append_v,
};
const char* to_string(Role role);
constexpr Role bulk_role(bool is_quantize, bool is_key, kv::RowType type) {
  return Role(int(Role::quantize_bulk_k_f16) + (is_quantize ? 0 : 6) + (is_key ? 0 : 3) + int(type) -
              int(kv::RowType::f16));
}

// One side of the cache, and the bytes of its rows; a row is one KV head of one token.
struct SideInfo {
  std::string format;
  bool is_transformed = false;    // the rotated domain is not the caller's (Format::is_transformed)
  long long row_bytes = 0;        // layout rows: bytes of a row, which is whole blocks
  long long code_row_bytes = 0;   // layout planar: bytes of a row of codes
  long long scale_row_bytes = 0;  // layout planar: bytes of a row of scales; 0 if the format has no scale
  double bits_per_value = 0;
  int rotated_dim = 0;            // values of a row in the rotated domain as kernels compute with them
  int stored_dim = 0;             // values of a row that dequantize with keep_rotated writes
  bool has_tensor_scale = false,  // the caller gives one scale for the whole tensor
      has_head_scales = false;    // the caller gives one scale for each KV head, in CacheSide::scales
  bool swizzles_scales = false;   // pages: scales stand in pieces of four tokens
  bool stays_rotated = false;     // prefill in two passes: halves are in the rotated domain
  bool fits_rows = false;         // ... and rows beyond their range have powers of two
};

// Which calls that ask neither for prefill nor for decode take prefill on a GPU.
enum class PrefillChoice {
  never,
  if_full,  // calls whose work tiles and their splits are blocks for most of the device; the others take decode
  always
};

// A program as text: `kvjit emit` writes it, and the runtime compiles and launches it.
struct ProgramSource : AttentionShape {
  std::string id, title, arch;
  int rows = 0,          // query rows that a block of decode takes at once; with token-major heads, those of all heads
      query_chunks = 1;  // chunks of so many rows that make up the query rows of a KV head
  int tile_tokens = 0;   // tokens of a tile of decode
  int prefill_rows = 0;  // query rows of a work tile of prefill; 0: the program has no prefill
  // How prefill shares a work tile among blocks.
  struct PrefillSplits {
    int tile_tokens = 128,
        least_tiles = 32;                // of a split, about; a split costs the time of several tiles (NOTES.md)
    bool alternates = false;             // both consumers of a block have parts, which are merged as splits are
    int slot_sums = 0, slot_states = 0;  // floats of a partial result, and of its softmax
  } prefill_splits;
  PrefillChoice prefill_choice = PrefillChoice::never;
  // With run-time query lengths, decode attends for sequences of fewer queries, and prefill for the others.
  int least_prefill_queries = 1;
  // The steps of `decode` beside attention: it rotates Q, merges KV splits, rotates the output. If `merge` merges, it
  // also rotates the output.
  bool rotates_queries = false, fuses_merge = false, rotates_output = false;
  int merge_steps = 1;     // steps of a warp in the fused merge, of 128 sums of a row each; above 1 `merge` may merge
  SchedulerTiming timing;  // of the arch
  SideInfo k, v;
  std::map<Role, Source> kernels;
  // Run-time query lengths: a program for each range of queries, by `decode`, ascending; then one by `prefill`, in one
  // pass or in two, if that serves the problem, for any number. Each has the kernels of attention only, and
  // query_length is the most that it serves. A sequence takes the first that serves its queries.
  std::vector<ProgramSource> buckets;
  // Prefill in two passes: the program by whose `prefill` the second attends, over halves in layout planar; else empty.
  // If rows may have powers of two there is another one, for chunks in which some have. Each chunk takes one of both.
  std::vector<ProgramSource> second_pass;
  int least_two_pass_queries = 0;  // calls of so many queries a sequence take two passes on a GPU; 0: none does
  std::vector<Decision> decisions;
};

// The program of the second pass of prefill in two; null if the program has none. With run-time query lengths the
// bucket of prefill has it.
inline const ProgramSource* second_pass_of(const ProgramSource& program) {
  const ProgramSource& own = program.buckets.empty() ? program : program.buckets.back();
  return own.second_pass.empty() ? nullptr : &own.second_pass.front();
}

// Visits each kernel of a program: visit(Role, Source&).
template <class Program, class Visit>
void for_each_kernel(Program& program, const Visit& visit) {
  for (auto& [role, source] : program.kernels) visit(role, source);
  for (auto& bucket : program.buckets) for_each_kernel(bucket, visit);
  for (auto& second_pass : program.second_pass) for_each_kernel(second_pass, visit);
}

}  // namespace kvjit
