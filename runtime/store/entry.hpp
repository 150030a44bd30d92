// CacheEntry: one artefact as one self-checking file. This file knows bytes only; runtime/store/disk_cache.cpp knows
// folders, owners and locks.
//
//   magic[8] | header (fixed, little endian) | name | compiler | pieces | text | log | payload | SHA-256
//
// The SHA-256 at the end covers a domain tag and everything before it.
//
// `pieces` are the (name, value) fields of the key (runtime/store/key.hpp). The key is their SHA-256, and the value of
// one field is the SHA-256 of the text. So an entry proves from which request it was compiled.
// SPDX-License-Identifier: MIT
#pragma once
#include <sys/stat.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "generator/base/result.hpp"
#include "runtime/compile/artefact.hpp"
#include "runtime/store/key.hpp"

namespace kvjit {

// Bytes. Larger files are not read; a kernel is tens of KB.
constexpr std::uint64_t kMaxEntryBytes = std::uint64_t{256} << 20;

struct CacheEntry {
  std::string name;      // Source::name
  std::string compiler;  // Compiler::identity() of the compiler that made it
  Key key;
  std::string text;  // Source::text; "" in bundles, which hold no texts
  Artefact artefact;
};

// Whether nobody but this user and root can have written a file. The store reads kernels from such files only.
bool is_only_ours(const struct stat& status);

std::vector<std::uint8_t> encode_entry(const CacheEntry& entry);
// Fails with integrity, and the message says what is wrong. key_hex: the requested key, so that a renamed file is no
// hit.
Result<CacheEntry> decode_entry(std::string_view key_hex, std::span<const std::uint8_t> bytes);

}  // namespace kvjit
