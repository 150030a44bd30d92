// The one way to open a file that a caller names: a spec, a format, a hook, a .npy, weights. Only a regular file is
// opened, and its size is checked before memory is allocated for it. So a folder, a pipe that nobody writes to or an
// endless device is an error with a name, and neither blocks the process nor fills its memory. What the cache and
// bundles open has stricter rules, about owners and links: runtime/store.
// SPDX-License-Identifier: MIT
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "generator/base/result.hpp"
#include "runtime/base/file.hpp"

namespace kvjit {

// Bytes of the largest text file (specs, formats, hooks): a thousand times the largest that is published with kvjit.
inline constexpr std::uint64_t kMaxTextBytes = 16 << 20;

struct InputFile {
  File file;
  std::uint64_t size = 0;  // bytes
};

// Opens `path` to be read at positions, with read_at. Refuses what is no regular file or has more than `most` bytes.
Result<InputFile> open_input(const std::string& path, std::uint64_t most);

// All bytes of `path`, at most as many as the machine has memory.
Result<std::vector<std::uint8_t>> read_bytes(const std::string& path);
// The text of `path`, at most kMaxTextBytes.
Result<std::string> read_text(const std::string& path);

}  // namespace kvjit
