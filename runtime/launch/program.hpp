// Program: the kernels of one spec on one device. It loads each kernel when it is first needed, checks a call, and
// launches. It knows no format: sizes and strides come from ProgramSource.
//
// Member functions are defined in the file of the family that they launch: decode.cpp (attention and reference),
// codec.cpp, operations.cpp, auxiliary.cpp. varlen.cpp shares a call with run-time query lengths among kernels, and
// program.cpp loads kernels.
// SPDX-License-Identifier: MIT
#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <stop_token>
#include <vector>

#include "generator/source.hpp"
#include "runtime/jit/context.hpp"
#include "runtime/launch/calls.hpp"

namespace kvjit {

struct ContextChunks;  // prefill.hpp
struct SideTokens;     // kv_checks.hpp

class Program {
 public:
  // Creates a program and loads the kernels of attention. Several programs of one spec may have one `source`.
  static Result<std::shared_ptr<Program>> create(std::shared_ptr<Context> context,
                                                 std::shared_ptr<const ProgramSource> source,
                                                 std::stop_token stop = {});
  static Result<std::shared_ptr<Program>> create(std::shared_ptr<Context> context, ProgramSource source,
                                                 std::stop_token stop = {});
  // Loads nothing: use create().
  Program(std::shared_ptr<Context> context, std::shared_ptr<const ProgramSource> source);

  const ProgramSource& source() const { return source_; }
  // The kernels that create() loads.
  Result<std::vector<const Source*>> first_kernels() const;
  std::size_t workspace_bytes(const AttentionCall& call) const;
  // Allocates nothing and does not synchronize, so it is safe in CUDA graphs.
  Result<LaunchReport> attention(const AttentionCall& call, DevicePointer workspace, Stream stream) const;
  // The readable kernel over the same inputs. It stores nothing: new tokens must be in the cache already.
  Result<LaunchReport> reference(const AttentionCall& call, DevicePointer workspace, Stream stream) const;
  // Merges outputs over parts of a context into the output over all of it, for programs with lse. args.queries must be
  // the program's query_length.
  Result<void> merge(const kv::MergeContextsArgs& args, Stream stream) const;
  // Finds the ranges of tokens that the call's mask shows: the token_ranges of calls with that mask.
  Result<void> mask_ranges(const AttentionCall& call, int* token_ranges, Stream stream) const;
  // side: 0 = K, 1 = V. table: read for programs over pages, unless the call has slots, which hold page numbers.
  Result<void> quantize(int side, const kv::CodecArgs& args, Stream stream, const kv::PageTable& table = {},
                        const CheckBounds& check = {}) const;
  Result<void> dequantize(int side, const kv::CodecArgs& args, Stream stream, const kv::PageTable& table = {},
                          const CheckBounds& check = {}) const;
  // The operations from here on take a kernel that the generator emits on request
  // (generator/kernels/operations/operations.hpp) and that the caller owns.
  //
  // Copies tokens of a side of this program's cache to a side of another program's.
  Result<void> copy(const CopyCall& call, const Program& to, const Source& kernel, Stream stream) const;
  // Rotates rows of a side to other positions, in place.
  Result<void> shift(const ShiftCall& call, const Source& kernel, Stream stream) const;
  // The role that serves such a call of quantize or dequantize: the bulk kernel's, or that of the kernel for any row.
  Role codec_role(int side, bool is_writing, const kv::CodecArgs& args) const;
  // Quantizes (is_writing) or dequantizes the tokens at `slots`; args.slots must be null. kernel: that of codec_role,
  // generated for this slot type.
  Result<void> by_slots(int side, bool is_writing, const kv::CodecArgs& args, const SlotNumbers& slots,
                        const Source& kernel, Stream stream, const CheckBounds& check = {}) const;
  // Rotates rows to their positions and quantizes them. table: read if the call has no slots.
  Result<void> quantize_rope(int side, const kv::CodecArgs& args, const kv::RopeArgs& rope, const Source& kernel,
                             Stream stream, const kv::PageTable& table = {}, const CheckBounds& check = {},
                             const SlotNumbers& slots = {}) const;
  // The largest power of two, up to 16, that divides the addresses and strides of a copy's caches, in bytes. Token
  // strides of scales are left out.
  static int alignment_of(const CopyCall& call, const Program& from, const Program& to);
  const KernelRecord* record(Role role) const;  // null if that kernel is not loaded yet
  struct LoadedKernel {
    Role role;
    const Source* source;
    const KernelRecord* record;
  };
  std::vector<LoadedKernel> loaded_kernels() const;

 private:
  std::shared_ptr<Context> context_;
  std::shared_ptr<const ProgramSource> shared_source_;
  const ProgramSource& source_;  // *shared_source_
  mutable std::mutex mutex_;     // guards kernels_
  mutable std::map<Role, KernelRecord> kernels_;
  std::vector<std::unique_ptr<Program>> buckets_;        // of ProgramSource::buckets
  std::vector<std::unique_ptr<Program>> second_passes_;  // of ProgramSource::second_pass
  std::vector<Role> roles_of_attention() const;          // in launch order
  // The programs whose kernels of attention create() loads: this one, the second pass and the buckets that calls take.
  Result<std::vector<const Program*>> parts() const;
  Result<void> load(std::stop_token stop) const;      // all parts
  Result<void> load_own(std::stop_token stop) const;  // this one
  // Run-time query lengths (varlen.cpp): queries of a sequence that a launch serves, and whether it is the first and
  // the last of its call, which rotate Q and the output of all sequences.
  struct QueryLengths {
    int least = 0, most = 0;
    bool is_first = true, is_last = true;
  };
  struct BucketLengths {
    Program* bucket;
    QueryLengths lengths;
  };
  // The buckets that sequences of a call may take; of any call if `call` is null. Fails if they do not serve the call.
  Result<std::vector<BucketLengths>> buckets_of(const AttentionCall* call) const;
  Result<LaunchReport> run_buckets(const AttentionCall& call, DevicePointer workspace, Stream stream) const;
  kv::CheckArgs check_args(const AttentionCall& call) const;
  Result<const KernelRecord*> kernel(Role role, std::stop_token stop = {}) const;
  // chunk: of a second pass.
  Result<LaunchReport> run(bool readable, const AttentionCall& call, DevicePointer workspace, Stream stream,
                           const QueryLengths& lengths, const kv::ContextChunkArgs* chunk = nullptr) const;
  // Prefill in two passes (two_pass.cpp).
  Result<void> run_two_passes(const AttentionCall& call, const ContextChunks& chunks, DevicePointer workspace,
                              Stream stream, const QueryLengths& lengths, LaunchReport& report) const;
  // Launches a kernel over sequences that have lengths, and returns its name.
  Result<std::string> bounded_codec(Role role, kv::BoundedCodecArgs args, kv::CheckRecord* record, Stream stream) const;
  // Stores the new tokens of a call by prefill.
  Result<void> append_new_rows(const AttentionCall& call, Stream stream, LaunchReport& report) const;
  Result<void> dequantize_chunk(int side, const kv::BoundedCodecArgs& args, kv::CheckRecord* record, Stream stream,
                                LaunchReport& report) const;
  Result<void> codec(int side, bool is_writing, const kv::CodecArgs& args, const kv::PageTable& table,
                     const CheckBounds& check, Stream stream) const;
  Result<void> check_codec(int side, bool is_writing, const kv::CodecArgs& args, const CacheCall& at) const;
  struct Counts {
    int sequences, tokens, heads;
  };
  Result<void> check_tokens(const char* name, const char* slots, const CacheCall& at, const Counts& counts,
                            bool is_written) const;
  // The tokens of a call that a check of overlaps may count on. Slots may be any, so of those only token 0 counts.
  SideTokens side_tokens(const char* name, const CacheCall& at, const Counts& counts) const;
  // Checked programs only: launches `check` over the page table or the slots of an operation, before its kernel.
  Result<void> check_cache(const CacheCall& at, int sequences, int tokens, kv::CheckRecord* record,
                           Stream stream) const;
  template <class Args>
  Result<void> launch_operation(const Source& kernel, Grid grid, const Args& args, kv::CheckRecord* record,
                                Stream stream) const;
  Result<void> launch_check(kv::CheckArgs args, const CheckBounds& check, Stream stream) const;
  Result<LaunchReport> finish_report(const AttentionCall& call, LaunchReport report) const;
};

}  // namespace kvjit
