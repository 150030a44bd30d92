// Hook: a user's expression that changes the scores of attention, for experiments. It is the text of a file
// specs/hooks/NAME.cuh, and a spec names it (attention.hook). Files come with the binary, or from folders that the
// caller names (--specs DIR). A hook is data: the kernel has the expression as hook_grammar.hpp prints it.
// SPDX-License-Identifier: MIT
#pragma once
#include <string>
#include <string_view>

#include "generator/base/result.hpp"

namespace kvjit {

constexpr std::size_t kMostHookText = 4096;  // characters of a file

struct Hook {
  std::string name;        // the file's stem
  std::string expression;  // C++ in one line, printed from the parse
  bool operator==(const Hook&) const = default;
  bool reads(std::string_view name) const;  // whether the expression has this name
};

// Parses the text of a file: // comments, and one expression of hook_grammar.hpp. Fails with bad_input, and names line
// and column of what is no such expression, or of the character that is one too many.
Result<Hook> parse_hook(std::string_view text, const std::string& file);

}  // namespace kvjit
