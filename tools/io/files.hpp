// Writes whole files, with errors that name the file. Files are read by runtime/base/input_file.hpp.
// SPDX-License-Identifier: MIT
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "generator/base/result.hpp"

namespace kvjit {

// Fails if an output is the same file as an input or as another output, by whatever names. Empty names are left out.
Result<void> check_apart(const std::vector<std::string>& inputs, const std::vector<std::string>& outputs);
// Writes beside the file and renames, so that a failure leaves the old file as it was.
Result<void> write_bytes(const std::string& file, std::span<const std::uint8_t> bytes);
Result<void> write_text(const std::string& file, const std::string& text);
// Fails if write_bytes() could not make this file, because of its folder. A verb asks before long work.
Result<void> check_writable(const std::string& file);
Result<void> make_folder(const std::string& folder);  // and its parents; one that exists already is fine

}  // namespace kvjit
