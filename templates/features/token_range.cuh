// The tokens that a query sees by its position: kLeft tokens before it and kRight tokens behind it; -1 means all.
// Causal attention is kRight = 0. With kHasRanges a call also says which tokens of a sequence are seen at all. The tile
// scheduler leaves out tiles that no query of a call sees (kernels/decode/tile_scheduler.cuh).
// SPDX-License-Identifier: MIT
#pragma once
#include "device/simt.cuh"
#include "args/features.cuh"

namespace kv {

template <int kQueryLength, int kLeft, int kRight, bool kHasOffset, bool kHasRanges>
class SeenRange {
  const FeatureArgs& args_;

  KV_DEVICE static int clamped(i64 at, int length) { return at < 0 ? 0 : at > length ? length : int(at); }
  // A bound of the sequence's range: 0 is the first token, 1 the token behind the last.
  KV_DEVICE int bound(int sequence, int which, int length) const {
    return clamped(args_.token_ranges[2 * sequence + which], length);
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
    int at = kLeft < 0 ? 0 : clamped(i64(position(sequence, length, query)) - kLeft, length);
    if constexpr (kHasRanges) {
      const int least = bound(sequence, 0, length);
      if (at < least) at = least;
    }
    return at;
  }
  KV_DEVICE int end(int sequence, int length, int query) const {
    int at = kRight < 0 ? length : clamped(i64(position(sequence, length, query)) + kRight + 1, length);
    if constexpr (kHasRanges) {
      const int most = bound(sequence, 1, length);
      if (at > most) at = most;
    }
    return at;
  }
  // The first and the end of the tokens that any query of the call sees.
  KV_DEVICE int first(int sequence, int length) const { return first(sequence, length, 0); }
  KV_DEVICE int end(int sequence, int length) const { return end(sequence, length, kQueries - 1); }
};

}  // namespace kv
