// What kernels assume of the memory they are given and cannot see: refused before anything runs.
// SPDX-License-Identifier: MIT
#pragma once
#include "args/page_table.cuh"
#include "generator/base/result.hpp"
#include "generator/source.hpp"

namespace kvjit {

tl::unexpected<Error> refuse(std::string message);
Result<void> check_pointer(const char* name, const void* pointer, unsigned alignment);
// One side of a cache. name: "k" or "v".
Result<void> check_side(const ProgramSource& source, const SideFacts& facts, const char* name,
                        const kv::CacheSide& side, long long heads);
// Where heads of a token must lie side by side, that they do.
Result<void> check_token_heads(const ProgramSource& source, const SideFacts& facts, const char* name,
                               const kv::CacheSide& side, long long heads);
// Its page table, which programs over pages need, where slots do not lead to the pages instead, and no others take.
Result<void> check_table(const ProgramSource& source, const char* name, const kv::PageTable& table, bool is_needed);

}  // namespace kvjit
