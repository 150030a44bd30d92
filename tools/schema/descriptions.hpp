// Describes each key of a data file in a line for editors. The documents of specs/docs have the details.
// SPDX-License-Identifier: MIT
#pragma once
#include <map>
#include <string>

namespace kvjit {

// From "KIND.table.key" to the description. The keys of a side ([k], [v] and k, v of a rule or row) are "side.key", and
// those of a number of layers "extent.key". "KIND" alone describes the file.
const std::map<std::string, std::string>& key_descriptions();

}  // namespace kvjit
