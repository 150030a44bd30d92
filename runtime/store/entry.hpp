// CacheEntry: one artefact as one self-checking file. This file knows bytes only; runtime/store/disk_cache.cpp knows
// folders, owners and locks.
//
//   magic[8] | header (fixed, little endian) | name | compiler | pieces | text | log | payload | SHA-256
//
// The last field is the SHA-256 of all others behind a domain tag.
//
// The key is the SHA-256 of the pieces, and one piece is the SHA-256 of the text. So an entry proves what it was made
// from.
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

// Larger files are not read. A kernel is tens of KB.
constexpr std::uint64_t kMaxEntryBytes = std::uint64_t{256} << 20;

struct CacheEntry {
  std::string name;      // Source::name
  std::string compiler;  // Compiler::identity() of the compiler that made it
  Key key;
  std::string text;  // Source::text; "" in bundles, which leave it out
  Artefact artefact;
};

// Whether nobody but this user and root can have written a file. Kernels are read from no other files.
bool is_only_ours(const struct stat& status);

std::vector<std::uint8_t> encode_entry(const CacheEntry& entry);
// Fails with integrity and says what does not fit. key_hex: the key that was asked for, so that a renamed file is no
// hit.
Result<CacheEntry> decode_entry(std::string_view key_hex, std::span<const std::uint8_t> bytes);

}  // namespace kvjit
