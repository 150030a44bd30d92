// Checks of a cache's memory: alignments, strides, overlaps, page tables. Kernels assume the contract of
// args/attention.cuh and args/page_table.cuh and cannot verify it, so a call that breaks it is refused before anything
// runs. Every check fails with bad_input. Internal to runtime/.
// SPDX-License-Identifier: MIT
#pragma once
#include <string>
#include <vector>

#include "args/page_table.cuh"
#include "generator/base/result.hpp"
#include "generator/source.hpp"
#include "runtime/launch/footprint.hpp"

namespace kvjit {

// A bad_input error.
tl::unexpected<Error> refuse(std::string message);
Result<void> check_pointer(const MemoryName& name, const void* pointer, unsigned alignment);
// One side of a cache for `heads` KV heads. name: "k" or "v", for messages.
Result<void> check_side(const ProgramSource& source, const SideInfo& info, const char* name, const kv::CacheSide& side,
                        long long heads);
// Checks the planes that the cache holds of a side. It leaves out the scales of heads, which are the caller's.
Result<void> check_planes(const ProgramSource& source, const SideInfo& info, const char* name,
                          const kv::CacheSide& side, long long heads);
// Checks that the KV heads of a token lie side by side, if the program has token-major heads (cache.token_heads).
Result<void> check_token_heads(const ProgramSource& source, const SideInfo& info, const char* name,
                               const kv::CacheSide& side, long long heads);
// The tokens of one side of a cache that a call uses for sure, in memory that exists for sure.
struct SideTokens {
  const char* name;  // "k" or "v"
  const kv::CacheSide& side;
  long long sequences, heads;
  long long first, tokens;  // tokens first .. first + tokens - 1 of each sequence; not read for paged caches
  long long pages = 1;      // of the pool; read for paged caches only
};
// The planes of a side: codes, and scales if the format has a plane of them.
std::vector<Footprint> footprints_of(const ProgramSource& source, const SideInfo& info, const SideTokens& tokens);
// The tokens must fit 64 bits. If the call writes some, the rows of the cache up to the last of them must not overlap.
Result<void> check_side_memory(const ProgramSource& source, const SideInfo& info, const SideTokens& tokens,
                               bool is_written);
// The page table of a side. Only programs over pages take one. is_needed: the call has no slots, so a program over
// pages needs the table.
Result<void> check_table(const ProgramSource& source, const char* name, const kv::PageTable& table, bool is_needed);

}  // namespace kvjit
