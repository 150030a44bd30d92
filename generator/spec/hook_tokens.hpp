// hook_tokens: splits the text of a hook's file into numbers, words and symbols. A character, number or symbol that an
// expression of hooks does not have is refused at its place, so what follows sees nothing else.
// SPDX-License-Identifier: MIT
#pragma once
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "generator/base/result.hpp"

namespace kvjit {

// The text of a hook's file, and how messages call the file.
struct HookText {
  std::string_view text;
  std::string file;
  // The place of a character (or of the end), with its line as the excerpt.
  Where where(std::size_t at) const;
};

struct HookToken {
  enum class Kind { integer, real, word, symbol, end };
  Kind kind = Kind::end;
  std::string_view text;  // its characters; empty at the end
  std::size_t at = 0;     // where they begin
  int integer = 0;        // the value of an integer, from 0 on
  float real = 0;         // the value of a real number, 0 or positive, finite
};

// The tokens, without blanks and // comments. The last one is the end, whose place is behind the last character of the
// token before it. Fails with bad_input at line and column.
Result<std::vector<HookToken>> hook_tokens(const HookText& text);

}  // namespace kvjit
