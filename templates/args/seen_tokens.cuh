// The tokens that queries see by their position, for host and device. A query sees `left` tokens before it and `right`
// tokens after it; -1 means all. Causal attention has 0 tokens after it. A call may also give each sequence a range of
// tokens that are seen at all. The tokens that any query of a sequence sees are neighbours: [first, end).
//
// features/token_range.cuh takes these rules with the numbers of a plan. SeenArgs has the numbers for kernels that
// serve every plan.
// SPDX-License-Identifier: MIT
#pragma once
#include "args/tokens.cuh"
#include "args/types.cuh"
#include "device/shared_functions.cuh"

namespace kv {

KV_SHARED int clamped_token(i64 at, int length) { return at < 0 ? 0 : at > length ? length : int(at); }
// The first token that a query at this position sees, and the token after the last that it sees.
KV_SHARED int first_in_window(i64 position, int left, int length) {
  return left < 0 ? 0 : clamped_token(position - left, length);
}
KV_SHARED int end_of_window(i64 position, int right, int length) {
  return right < 0 ? length : clamped_token(position + right + 1, length);
}

struct SeenArgs {
  int left, right;              // tokens before and after its position that a query sees; -1: all
  int queries;                  // of a sequence
  int position_offset;          // added to the positions of all queries,
  const int* position_offsets;  // and of each sequence's, [sequence]; null: zeros
  const int* token_ranges;      // [sequence] of the first token that is seen, and of the token after the last; or null
};

// The tokens of a sequence that any of its `queries` last queries sees.
KV_SHARED TokenRange seen_tokens(const SeenArgs& args, i64 sequence, int length, i64 queries) {
  const i64 behind = i64(length) + args.position_offset + (args.position_offsets ? args.position_offsets[sequence] : 0);
  TokenRange seen{first_in_window(behind - queries, args.left, length), end_of_window(behind - 1, args.right, length)};
  if (args.token_ranges) {
    const int least = clamped_token(args.token_ranges[2 * sequence], length),
              most = clamped_token(args.token_ranges[2 * sequence + 1], length);
    if (seen.first < least) seen.first = least;
    if (seen.end > most) seen.end = most;
  }
  if (seen.end < seen.first) seen.end = seen.first;
  return seen;
}

}  // namespace kv
