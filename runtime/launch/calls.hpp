// The calls of a program: what a caller states for attention, for an operation on caches, and for a checked program.
// SPDX-License-Identifier: MIT
#pragma once
#include <cstddef>
#include <string>
#include <vector>

#include "args/checks.cuh"
#include "args/features.cuh"
#include "args/operations.cuh"
#include "generator/base/result.hpp"
#include "generator/source.hpp"

namespace kvjit {

// A workspace begins with counters, which must be zero before the first call that uses it; every call leaves them zero.
constexpr int kMostBlocks = 512;
constexpr std::size_t kCounterBytes = kMostBlocks * kv::kMostBlockWarps * sizeof(kv::u32);

// Of checked programs: where they write what is out of range, and the ranges that a call does not have otherwise.
struct CheckBounds {
  kv::CheckRecord* record = nullptr;   // in device memory
  long long k_pages = 0, v_pages = 0;  // of the pools
  long long slot_count = 0;            // tokens that a sequence has room for; of pages it is not needed
};
const char* to_string(kv::CheckedArray array);
// Nothing, or what the record of a call says.
Result<void> check_passed(const kv::CheckRecord& record);

// One attention call. Pointers are device pointers (host pointers on the CPU back-end).
struct AttentionCall {
  kv::Rows q;  // the program's q type
  kv::CacheSide k, v;
  kv::Rows out;                  // the program's out type
  const int* lengths = nullptr;  // device; null: `tokens` for every sequence
  int tokens = 0;                // largest length
  int sequences = 1, kv_heads = 1;
  double scale = 0;                              // 0: 1/sqrt(head_dim)
  float k_tensor_scale = 1, v_tensor_scale = 1;  // of formats that have one scale for the whole tensor; else 1
  int blocks = 0;  // that share the tokens: at most so many, kMostBlocks at most; 0: one a multiprocessor
  // Of programs that append, and only of those: the query_length newest tokens, which `tokens` and `lengths` count.
  kv::Rows new_k{}, new_v{};
  kv::RowType new_type = kv::RowType::f16;
  // What the program's features read, and nothing else. leaves_sinks: they are counted in a call over another part of
  // the context.
  kv::FeatureArgs features{};
  bool leaves_sinks = false;
  kv::PageTable k_table{}, v_table{};  // of programs over pages, and only of those
  CheckBounds check{};                 // of checked programs
};

// Numbers of tokens, in device memory; null: none.
struct SlotNumbers {
  const void* numbers = nullptr;
  kv::SlotType type = kv::SlotType::i64;
};
// The tokens of one side of a cache that an operation reads or writes.
struct CacheCall {
  int side = 0;  // 0 = K, 1 = V
  kv::CacheTokens tokens{};
  long long pool_pages = 0, slot_count = 0;  // of checked programs
};
struct CopyCall {
  CacheCall from, to;
  int sequences = 1, tokens = 0, heads = 1;
  kv::CheckRecord* record = nullptr;  // of checked programs
};
struct ShiftCall {
  CacheCall at;
  int sequences = 1, tokens = 0, heads = 1;
  kv::RopeArgs rope{};
  kv::CheckRecord* record = nullptr;
};

// What really ran, for reports and tests.
struct LaunchReport {
  std::vector<std::string> kernels;   // names, in launch order
  std::string k_reader, v_reader;     // formats read inside the kernel
  std::vector<std::string> features;  // that the call had: "causal", "softcap 50" ...
  long long cache_bytes = 0;          // bytes of K and V the call has to read
  long long converted_bytes = 0;      // bytes converted outside the fused kernel: always 0
  int blocks = 0;                     // of the attention kernel
};

}  // namespace kvjit
