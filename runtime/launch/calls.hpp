// The structs that state a call of a Program: attention, copies, shifts, and the additional arguments of checked calls.
// Pointers are device pointers; on the CPU back-end they are host pointers. kvjit.h states the same calls for C.
// SPDX-License-Identifier: MIT
#pragma once
#include <cstddef>
#include <string>
#include <vector>

#include "args/checks.cuh"
#include "args/context_chunks.cuh"
#include "args/features.cuh"
#include "args/operations.cuh"
#include "args/varlen.cuh"
#include "generator/base/result.hpp"
#include "generator/source.hpp"

namespace kvjit {

// Most blocks that `decode` is launched with.
constexpr int kMostBlocks = 512;
// Bytes at the start of a workspace that hold split counters: one for each block and warp. They must be zero before the
// first call that uses the workspace; every call leaves them zero.
constexpr std::size_t kCounterBytes = kMostBlocks * kv::kMostBlockWarps * sizeof(kv::u32);

// Additional arguments of checked programs: the record of a value out of range, and limits that no other argument
// states.
struct CheckBounds {
  kv::CheckRecord* record = nullptr;  // in device memory
  long long k_pages = 0,              // pages of K's pool
      v_pages = 0;                    // pages of V's pool
  long long slot_count = 0;           // as in CacheCall
};
const char* to_string(kv::CheckedArray array);
// Succeeds if the record is empty. Else fails with bad_input and describes the value that it holds.
Result<void> check_passed(const kv::CheckRecord& record);

// Which kernels attend where a program has decode and prefill, in one pass or in two. chosen: on a GPU as
// ProgramSource::prefill_choice and least_two_pass_queries say, on the CPU back-end decode. Asking a program for what
// it does not have is an error.
enum class ManyRows { chosen, decode, prefill, two_pass };

// One attention call.
struct AttentionCall {
  kv::Rows q;       // queries, in the program's q type
  kv::CacheSide k,  // the cache
      v;
  kv::Rows out;                  // output, in the program's out type
  const int* lengths = nullptr;  // tokens of each sequence, on the device; null: `tokens` for every sequence
  int tokens = 0;                // the largest length
  int sequences = 1, kv_heads = 1;
  double scale = 0;          // factor of the scores; 0: 1/sqrt(head_dim)
  float k_tensor_scale = 1,  // scales of formats with one scale for the whole tensor; else 1
      v_tensor_scale = 1;
  int blocks = 0;  // most blocks of `decode`, up to kMostBlocks; 0: one for each multiprocessor
  // K and V of the new tokens of this call, query_length a sequence, for append programs and only for those. `tokens`
  // and `lengths` count them.
  kv::Rows new_k{}, new_v{};
  kv::RowType new_type = kv::RowType::f16;
  kv::FeatureArgs features{};  // inputs of the program's features, and of no other feature
  bool leaves_sinks = false;   // another call, over another part of the context, counts the sinks
  kv::PageTable k_table{},     // page tables; read for programs over pages, refused for others
      v_table{};
  CheckBounds check{};  // read for checked programs only
  ManyRows many_rows = ManyRows::chosen;
  std::size_t context_chunk_bytes = 0;  // prefill in two passes: most bytes of halves in the workspace; 0: 128 MiB
  // Programs with run-time query lengths: queries of a sequence, at most. Else 0, or the program's query_length.
  int queries = 0;
  // Ragged batches of such programs, [sequences + 1], on the device: sequence s has the rows query_starts[s] ..
  // query_starts[s + 1] - 1 of q and out, whose sequence strides are not read. query_rows: rows of q and out.
  const int* query_starts = nullptr;
  long long query_rows = 0;
};

// Slots of a call, with their integer type.
struct SlotNumbers {
  const void* slots = nullptr;  // in device memory; null: the call states no slots
  kv::SlotType type = kv::SlotType::i64;
};
// The tokens of one side of a cache that an operation reads or writes.
struct CacheCall {
  int side = 0;  // 0 = K, 1 = V
  kv::CacheTokens tokens{};
  long long pool_pages = 0,  // checked programs over pages: pages of the pool
      slot_count = 0;        // checked programs with slots: capacity of a sequence, tokens; over pages, if pool_pages
                             // is 0: slots of the pool
};
// A copy of tokens from one cache to another.
struct CopyCall {
  CacheCall from, to;
  int sequences = 1, tokens = 0, heads = 1;
  kv::CheckRecord* record = nullptr;  // checked programs: the check record, in device memory
};
// A rotation of stored keys to other positions, in place.
struct ShiftCall {
  CacheCall at;
  int sequences = 1, tokens = 0, heads = 1;
  kv::RopeArgs rope{};
  kv::CheckRecord* record = nullptr;  // checked programs: the check record, in device memory
};

// The kernels that an attention call launched and the data that they read, for reports and tests.
struct LaunchReport {
  std::vector<std::string> kernels;   // names, in launch order; one that prefill in two passes repeats is named once
  std::string k_reader,               // format in which the kernel read K
      v_reader;                       // format in which the kernel read V
  std::vector<std::string> features;  // features of the call: "causal", "softcap 50" ...
  long long cache_bytes = 0;          // bytes of K and V that the call has to read
  long long converted_bytes = 0;      // bytes of halves that the first pass of two has made of the cache; else 0
  int blocks = 0;                     // blocks of the attention kernel
};

}  // namespace kvjit
