// Checks of a call's numbers and arrays: the contract of args/attention.cuh and args/features.cuh. Kernels assume it
// and cannot verify it, so a call that breaks it is refused before anything runs. Every check fails with bad_input.
// `name` is the argument's name in messages. Internal to runtime/.
// SPDX-License-Identifier: MIT
#pragma once
#include "runtime/launch/calls.hpp"

namespace kvjit {

// Each count must be at least 1.
Result<void> check_counts(long long sequences, long long tokens, long long heads);
// The scale must be positive, and 1 if the format has no tensor scale: such a format would ignore any other scale.
Result<void> check_tensor_scale(const SideInfo& info, const char* name, float scale);
Result<void> check_row_type(const char* name, kv::RowType type);
Result<void> check_slots(const char* name, const void* slots, kv::SlotType type);
// K and V of the new tokens of this call (AttentionCall::new_k, new_v): append programs need them, others refuse them.
Result<void> check_new_rows(const ProgramSource& source, const AttentionCall& call);
// Inputs of features: the program's features need theirs, and inputs of any other feature are refused.
Result<void> check_features(const ProgramSource& source, const AttentionCall& call);

}  // namespace kvjit
