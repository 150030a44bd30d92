// Program: the few kernels that make one attention call, and their launch. Knows no format: geometry and bytes come
// from ProgramSource.
// SPDX-License-Identifier: MIT
#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "args/checks.cuh"
#include "args/features.cuh"
#include "args/operations.cuh"
#include "generator/source.hpp"
#include "runtime/jit/context.hpp"

namespace kvjit {

// Cache geometry of one side for `sequences` x `heads` x `capacity` tokens, as this library allocates it (an engine may
// pass its own strides instead).
//   rows    [sequence][token][head][row_bytes]
//   planar  codes [sequence][head][capacity][code_row_bytes], then scales [sequence][head][capacity][scale_row_bytes];
//           capacity is rounded up to a multiple of 64 tokens so that every head starts on a 16-byte boundary
//   paged   pages for the whole tokens of each sequence, rounded up; strides of sequences are those of pages (args/page_table.cuh). In a
//           page rows are [token][head][row_bytes]; planes are [head][token][code_row_bytes], then [head][token][scale_row_bytes]
struct SideGeometry {
  kv::CacheSide strides{};      // pointers null
  std::size_t codes_bytes = 0;  // also the offset of the scales plane (a multiple of 256; in pages, of 16)
  std::size_t total_bytes = 0;
};
SideGeometry side_geometry(const ProgramSource& source, const SideFacts& side, long long sequences, long long heads,
                           long long capacity);
kv::CacheSide at(const SideGeometry& geometry, DevicePointer base);

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

class Program {
 public:
  // Programs of one source may share it.
  static Result<std::shared_ptr<Program>> create(std::shared_ptr<Context> context,
                                                 std::shared_ptr<const ProgramSource> source,
                                                 std::stop_token stop = {});
  static Result<std::shared_ptr<Program>> create(std::shared_ptr<Context> context, ProgramSource source,
                                                 std::stop_token stop = {});
  // create() is what makes one ready to run.
  Program(std::shared_ptr<Context> context, std::shared_ptr<const ProgramSource> source)
      : context_(std::move(context)), shared_source_(std::move(source)), source_(*shared_source_) {}

  const ProgramSource& source() const { return source_; }
  std::size_t workspace_bytes(const AttentionCall& call) const;
  // No allocation, no synchronisation: safe in CUDA graphs once the kernels are loaded (create loads those of
  // attention).
  Result<LaunchReport> attention(const AttentionCall& call, DevicePointer workspace, Stream stream) const;
  // The readable kernel over the same inputs; out as in attention. It stores nothing: new tokens must be in the cache
  // already.
  Result<LaunchReport> reference(const AttentionCall& call, DevicePointer workspace, Stream stream) const;
  // Outputs over parts of a context to the output over all of it, of programs with lse. args.queries is the program's
  // own.
  Result<void> merge(const kv::MergePartsArgs& args, Stream stream) const;
  // side 0 = K, 1 = V. table: of programs over pages; where slots are given, these lead to the pages.
  Result<void> quantize(int side, const kv::CodecArgs& args, Stream stream, const kv::PageTable& table = {},
                        const CheckBounds& check = {}) const;
  Result<void> dequantize(int side, const kv::CodecArgs& args, Stream stream, const kv::PageTable& table = {},
                          const CheckBounds& check = {}) const;
  // Operations by kernels that the generator makes on request (generator/kernels/operations/operations.hpp); the caller
  // keeps them. Tokens of a side of this program's cache to one of another's.
  Result<void> copy(const CopyCall& call, const Program& to, const Source& kernel, Stream stream) const;
  // Rows of a side to other positions, in place.
  Result<void> shift(const ShiftCall& call, const Source& kernel, Stream stream) const;
  // The kernel that serves such a call of quantize or dequantize: one for many rows at once, or one for any row.
  Role codec_role(int side, bool is_writing, const kv::CodecArgs& args) const;
  // quantize or dequantize of the tokens that slots name; args has none. kernel: of codec_role, made for slots of that
  // type.
  Result<void> by_slots(int side, const kv::CodecArgs& args, const SlotNumbers& slots, const Source& kernel,
                        Stream stream, const CheckBounds& check = {}) const;
  // quantize of rows that turn to their positions first; table: where slots are not given.
  Result<void> quantize_rope(int side, const kv::CodecArgs& args, const kv::RopeArgs& rope, const Source& kernel,
                             Stream stream, const kv::PageTable& table = {}, const CheckBounds& check = {},
                             const SlotNumbers& slots = {}) const;
  // Of all addresses and strides of a copy's caches, in bytes: a power of two, up to 16.
  static int alignment_of(const CopyCall& call, const Program& from, const Program& to);
  const KernelRecord* record(Role role) const;  // null if that kernel was not needed yet
  std::vector<Role> loaded_roles() const;       // of which there are records

 private:
  std::shared_ptr<Context> context_;
  std::shared_ptr<const ProgramSource> shared_source_;
  const ProgramSource& source_;  // what that points at
  mutable std::mutex mutex_;     // of kernels_
  mutable std::map<Role, KernelRecord> kernels_;
  std::vector<Role> roles_of_attention() const;
  Result<const KernelRecord*> kernel(Role role, std::stop_token stop = {}) const;
  Result<LaunchReport> run(bool readable, const AttentionCall& call, DevicePointer workspace, Stream stream) const;
  Result<void> codec(int side, bool is_writing, const kv::CodecArgs& args, const kv::PageTable& table,
                     const CheckBounds& check, Stream stream) const;
  Result<void> check_codec(int side, const kv::CodecArgs& args, const CacheCall& at) const;
  Result<void> check_tokens(const char* name, const char* slots, const CacheCall& at, int heads) const;
  // Of checked programs: what leads to the tokens is looked at before it is used.
  Result<void> look_up(const CacheCall& at, int sequences, int tokens, kv::CheckRecord* record, Stream stream) const;
  template <class Args>
  Result<void> launch_operation(const Source& kernel, Grid grid, const Args& args, kv::CheckRecord* record,
                                Stream stream) const;
  Result<void> launch_check(kv::CheckArgs args, const CheckBounds& check, Stream stream) const;
  Result<LaunchReport> finish_report(const AttentionCall& call, LaunchReport report) const;
};

}  // namespace kvjit
