// The tokens that a query sees by its position (args/seen_tokens.cuh): kLeft tokens before it and kRight tokens behind
// it; -1 means all. Causal attention is kRight = 0. With kHasRanges a call also says which tokens of a sequence are
// seen at all. The tile scheduler leaves out tiles that no query of a call sees (kernels/decode/tile_scheduler.cuh),
// and pages that no query sees are not read (kernels/decode/paged.cuh).
// SPDX-License-Identifier: MIT
#pragma once
#include "device/simt.cuh"
#include "args/features.cuh"
#include "args/seen_tokens.cuh"

namespace kv {

template <int kQueryLength, int kLeft, int kRight, bool kHasOffset, bool kHasRanges>
class SeenRange {
  const FeatureArgs& args_;

  // A bound of the sequence's range: 0 is the first token, 1 the token behind the last.
  KV_DEVICE int bound(int sequence, int which, int length) const {
    return clamped_token(args_.token_ranges[2 * sequence + which], length);
  }

 public:
  static constexpr int kQueries = kQueryLength;
  // Whole tiles may be unseen. Without an offset of positions the last token is seen, so only kLeft can cut tiles.
  // Whether a row may not see a token that is there.
  static constexpr bool kMayHide = kHasRanges || kLeft >= 0 || (kRight >= 0 && (kQueries > 1 || kHasOffset));
  static constexpr bool kCutsTiles = kHasRanges || kLeft >= 0 || (kRight >= 0 && kHasOffset);

  KV_DEVICE explicit SeenRange(const FeatureArgs& args) : args_(args) {}

  // The token that a query stands at.
  KV_DEVICE int position(int sequence, int length, int query) const {
    int at = length - kQueries + query;
    if constexpr (kHasOffset)
      at += args_.position_offset + (args_.position_offsets ? args_.position_offsets[sequence] : 0);
    return at;
  }
  // The first token that a query sees, and the token behind the last that it sees.
  KV_DEVICE int first(int sequence, int length, int query) const {
    int at = first_in_window(position(sequence, length, query), kLeft, length);
    if constexpr (kHasRanges) {
      const int least = bound(sequence, 0, length);
      if (at < least) at = least;
    }
    return at;
  }
  KV_DEVICE int end(int sequence, int length, int query) const {
    int at = end_of_window(position(sequence, length, query), kRight, length);
    if constexpr (kHasRanges) {
      const int most = bound(sequence, 1, length);
      if (at > most) at = most;
    }
    return at;
  }
  // The first and the end of the tokens that any query of the call sees.
  KV_DEVICE int first(int sequence, int length) const { return first(sequence, length, 0); }
  KV_DEVICE int end(int sequence, int length) const { return end(sequence, length, kQueries - 1); }
  // The tokens that any query of the call from `first_query` on sees.
  KV_DEVICE TokenRange seen(int sequence, int length, int first_query = 0) const {
    if constexpr (kCutsTiles) {
      const int from = first(sequence, length, first_query), to = end(sequence, length);
      return {from, to > from ? to : from};
    } else {
      return {0, length};
    }
  }
};

}  // namespace kv
