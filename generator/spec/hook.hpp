// Hook: a user's C++ expression that changes the scores of attention, for experiments. It is the text of a file
// specs/hooks/NAME.cuh, and a spec names it (attention.hook). Files come with the binary, or from folders that the
// caller names (--specs DIR), so a spec alone brings no code.
// SPDX-License-Identifier: MIT
#pragma once
#include <string>
#include <string_view>

#include "generator/base/result.hpp"

namespace kvjit {

struct Hook {
  std::string name;        // the file's stem
  std::string expression;  // C++, in one line without comments
  bool operator==(const Hook&) const = default;
};

// Parses the text of a file: // comments, and one expression. Fails with bad_input, and names line and column: more
// than 4096 characters; no expression; brackets that do not match; characters that an expression of numbers does not
// need (; { } # " ' \ @ ` and what is not ASCII). So the text cannot end the function into which it is written.
Result<Hook> parse_hook(std::string_view text, const std::string& file);

}  // namespace kvjit
