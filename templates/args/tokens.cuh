// A range of tokens of a sequence.
// SPDX-License-Identifier: MIT
#pragma once

namespace kv {

struct TokenRange {
  int first,  // the first token
      end;    // the token after the last; first if there is none
};

}  // namespace kv
