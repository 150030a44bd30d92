// JSON Schemas (2020-12) of the files that kvjit reads, for editors and other tools. They state each key with its type,
// words and range, and which keys are required; how keys must fit together is left to the readers.
// SPDX-License-Identifier: MIT
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "generator/base/result.hpp"
#include "generator/catalogue/registry.hpp"

namespace kvjit {

struct FileSchema {
  std::string kind;    // "format"
  std::string folder;  // "formats": of such files in specs/
  nlohmann::ordered_json schema;
};

// The schema of one kind, or of all if `kind` is empty. Fails if there is no such kind, and with internal if a key has
// no description.
Result<std::vector<FileSchema>> file_schemas(const std::string& kind, const Registry& registry);

}  // namespace kvjit
