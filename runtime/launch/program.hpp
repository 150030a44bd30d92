// Program: the few kernels that make one attention call, and their launch. Knows no format: geometry and bytes come
// from ProgramSource.
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
