// Checks of a call's numbers and arrays: the contract of args/attention.cuh and args/features.cuh. Kernels assume it
// and cannot verify it, so a call that breaks it is refused before anything runs. Every check fails with bad_input.
// `name` is the argument's name in messages. Internal to runtime/.
// SPDX-License-Identifier: MIT
#pragma once
#include "runtime/launch/calls.hpp"
#include "runtime/launch/footprint.hpp"

namespace kvjit {

// Each count must be at least 1.
Result<void> check_counts(long long sequences, long long tokens, long long heads);
// A number as kernels read it: `value` must be a normal float above 0, so that it becomes neither 0 nor infinity.
// possible: what the caller may pass, for the message.
Result<void> check_factor(const char* name, double value, const char* possible);
// A tensor that a kernel writes or reads. The extents must fit 64 bits. Rows that are written must not overlap.
struct RowsCheck {
  const char* name;
  const kv::Rows& rows;
  long long sequences, queries, heads;
  int head_dim;
  int element_bytes;
  bool is_written;
};
Result<void> check_rows(const RowsCheck& tensor);
Footprint footprint_of(const RowsCheck& tensor);
// Fails if a tensor that is written overlaps another one.
Result<void> check_apart(const RowsCheck& written, const RowsCheck& other);
// Tokens first .. first + tokens - 1 of a cache.
Result<void> check_first_token(long long first, long long tokens);
// The scale must be a positive normal float, and 1 if the format has no tensor scale: such a format would ignore any
// other scale.
Result<void> check_tensor_scale(const SideInfo& info, const char* name, float scale);
Result<void> check_row_type(const char* name, kv::RowType type);
Result<void> check_slots(const char* name, const void* slots, kv::SlotType type);
// K and V of the new tokens of this call (AttentionCall::new_k, new_v): append programs need them, others refuse them.
Result<void> check_new_rows(const ProgramSource& source, const AttentionCall& call);
// Inputs of features: the program's features need theirs, and inputs of any other feature are refused.
Result<void> check_features(const ProgramSource& source, const AttentionCall& call);

}  // namespace kvjit
