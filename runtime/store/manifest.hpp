// Manifest: the JSON file of a bundle that is a folder. For each kernel it states the file's size and digest, the
// (name, value) fields of the kernel's key ("pieces"), and the resources that the compiler reported. The files
// themselves are bare machine code, so other tools can read them.
// SPDX-License-Identifier: MIT
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "generator/base/result.hpp"
#include "runtime/base/sha256.hpp"
#include "runtime/store/entry.hpp"

namespace kvjit {

constexpr std::uint64_t kMaxManifestBytes = std::uint64_t{64} << 20;

struct ManifestRow {
  std::string file;  // name in the folder, not a path
  std::uint64_t bytes = 0;
  Digest sha256{};   // SHA-256 of the file
  CacheEntry entry;  // without machine code, text and log
};

std::string file_name(const CacheEntry& entry);  // from kernel name, first digits of the key, and kind
std::string write_manifest(const std::vector<CacheEntry>& entries);
// Fails with integrity if the text is no JSON; if a member is missing, unknown, duplicate, of another type or out of
// range; if a file name leads out of the folder; or if a key does not match its fields.
Result<std::vector<ManifestRow>> read_manifest(std::string_view text);

}  // namespace kvjit
