// A range of tokens of a sequence.
// SPDX-License-Identifier: MIT
#pragma once

namespace kv {

struct TokenRange {
  int first,  // the first token
      end;    // the token after the last; first if there is none
};

// Which tokens rows see (features/token_range.cuh): by rules that may leave tokens unseen by all rows of a call.
template <class Range>
concept LeavesTokens = Range::kCutsTiles;

}  // namespace kv
