// Hook: an expression of one's own over the scores of attention, for experiments, given by a file specs/hooks/NAME.cuh.
// A spec names it (attention.hook); only folders that the caller names (--specs DIR) add to those that are built in, so
// that a spec alone brings no code.
// SPDX-License-Identifier: MIT
#pragma once
#include <string>
#include <string_view>

#include "generator/base/result.hpp"

namespace kvjit {

struct Hook {
  std::string name;        // the file's stem
  std::string expression;  // of C++, comments taken out, one line
  bool operator==(const Hook&) const = default;
};

// Text of a file: // comments, and one expression. Fails with bad_input, naming line and column: more than 4096
// characters, nothing but comments, brackets that do not match, and whatever an expression of numbers needs not (; { }
// # " ' \ @ ` and what is not ASCII), so that the text cannot end the function that it is put into.
Result<Hook> parse_hook(std::string_view text, const std::string& file);

}  // namespace kvjit
