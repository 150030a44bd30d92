// Finds out what the readers of data files ask for. explore reads every built-in file of a kind, and copies of it in
// which one thing is different, while a Recording notes the keys (generator/base/recording.hpp).
// SPDX-License-Identifier: MIT
#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "generator/base/recording.hpp"
#include "generator/catalogue/registry.hpp"

namespace kvjit {

// A kind of file that kvjit reads.
struct FileKind {
  std::string name;    // "format"
  std::string folder;  // "specs/formats/": its built-in files
  // Reads a file and forgets the result.
  std::function<void(std::string_view text, const std::string& file, const Registry& registry)> read;
};
const std::vector<FileKind>& file_kinds();

// The text of a tree, all below the top as inline tables.
std::string toml_text(const schema::Node& top);

void explore(const FileKind& kind, const Registry& registry, schema::Recording& recording);

}  // namespace kvjit
