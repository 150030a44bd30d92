// Checks of a cache's memory: alignments, strides, page tables. Kernels assume the contract of args/attention.cuh and
// args/page_table.cuh and cannot verify it, so a call that breaks it is refused before anything runs. Every check fails
// with bad_input. Internal to runtime/.
// SPDX-License-Identifier: MIT
#pragma once
#include "args/page_table.cuh"
#include "generator/base/result.hpp"
#include "generator/source.hpp"

namespace kvjit {

// A bad_input error.
tl::unexpected<Error> refuse(std::string message);
Result<void> check_pointer(const char* name, const void* pointer, unsigned alignment);
// One side of a cache for `heads` KV heads. name: "k" or "v", for messages.
Result<void> check_side(const ProgramSource& source, const SideInfo& info, const char* name, const kv::CacheSide& side,
                        long long heads);
// Checks that the KV heads of a token lie side by side, if the program has token-major heads (cache.token_heads).
Result<void> check_token_heads(const ProgramSource& source, const SideInfo& info, const char* name,
                               const kv::CacheSide& side, long long heads);
// The page table of a side. Only programs over pages take one. is_needed: the call has no slots, so a program over
// pages needs the table.
Result<void> check_table(const ProgramSource& source, const char* name, const kv::PageTable& table, bool is_needed);

}  // namespace kvjit
