// Manifest: what a bundle that is a folder holds, as JSON: for each file its size, its digest, the pieces of its
// kernel's key, and what the compiler said. The files themselves are bare machine code, for whoever wants that.
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
  std::string file;  // in the folder: no path
  std::uint64_t bytes = 0;
  Digest sha256{};   // of the file
  CacheEntry entry;  // but for the machine code, text and log
};

std::string file_name(const CacheEntry& entry);  // name, key's beginning, kind
std::string write_manifest(const std::vector<CacheEntry>& entries);
// Fails with integrity: what is no JSON, lacks a member or has one more, has one of another type or out of its range,
// leads out of the folder, is there twice, or has another key than its pieces.
Result<std::vector<ManifestRow>> read_manifest(std::string_view text);

}  // namespace kvjit
