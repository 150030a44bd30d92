// Checks of a call's numbers and arrays: the contract of args/attention.cuh and args/features.cuh. Kernels assume it
// and cannot verify it, so a call that breaks it is refused before anything runs. Every check fails with bad_input, and
// `name` is how messages call the argument. Internal to runtime/.
// SPDX-License-Identifier: MIT
#pragma once
#include "runtime/launch/calls.hpp"

namespace kvjit {

// At least 1 of each.
Result<void> check_counts(long long sequences, long long tokens, long long heads);
// A positive number; 1 if the format has no tensor scale, because it would ignore any other.
Result<void> check_tensor_scale(const SideInfo& info, const char* name, float scale);
Result<void> check_row_type(const char* name, kv::RowType type);
Result<void> check_slots(const char* name, const void* slots, kv::SlotType type);
// The newest tokens, which programs that append need and others refuse.
Result<void> check_new_rows(const ProgramSource& source, const AttentionCall& call);
// Inputs of features: those that the program reads, and no others.
Result<void> check_features(const ProgramSource& source, const AttentionCall& call);

}  // namespace kvjit
