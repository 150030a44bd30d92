// Checks of what a caller gives: the contract of args/attention.cuh and args/features.cuh. What a kernel assumes and
// cannot see is refused here, before anything runs. Internal to runtime/.
// SPDX-License-Identifier: MIT
#pragma once
#include "runtime/launch/calls.hpp"

namespace kvjit {

Result<void> check_counts(long long sequences, long long tokens, long long heads);
// A scale that the format would ignore is a mistake of the caller's.
Result<void> check_tensor_scale(const SideFacts& facts, const char* name, float scale);
Result<void> check_row_type(const char* name, kv::RowType type);
Result<void> check_slots(const char* name, const void* slots, kv::SlotType type);
Result<void> check_new_rows(const ProgramSource& source, const AttentionCall& call);
// A call brings what the features of its program read, and nothing else.
Result<void> check_features(const ProgramSource& source, const AttentionCall& call);

}  // namespace kvjit
