// Which tokens a query sees by its position: kLeft before it and kRight behind it, -1: all. Causal is kRight = 0. Tiles
// that no query of a call sees are not read (kernels/decode/tile_scheduler.cuh). Costs nothing a score but where a tile
// is cut: two instructions.
// SPDX-License-Identifier: MIT
#pragma once
#include "device/simt.cuh"
#include "args/features.cuh"

namespace kv {

template <int kQueryLength, int kLeft, int kRight, bool kHasOffset>
class SeenRange {
  const FeatureArgs& args_;

  KV_DEVICE static int clamped(i64 at, int length) { return at < 0 ? 0 : at > length ? length : int(at); }

 public:
  static constexpr int kQueries = kQueryLength;
  static constexpr bool kCutsTiles = kLeft >= 0 || (kRight >= 0 && kHasOffset);

  KV_DEVICE explicit SeenRange(const FeatureArgs& args) : args_(args) {}

  KV_DEVICE int position(int sequence, int length, int query) const {
    int at = length - kQueries + query;
    if constexpr (kHasOffset)
      at += args_.position_offset + (args_.position_offsets ? args_.position_offsets[sequence] : 0);
    return at;
  }
  // The first token that a query sees, and the one behind the last.
  KV_DEVICE int first(int sequence, int length, int query) const {
    return kLeft < 0 ? 0 : clamped(i64(position(sequence, length, query)) - kLeft, length);
  }
  KV_DEVICE int end(int sequence, int length, int query) const {
    return kRight < 0 ? length : clamped(i64(position(sequence, length, query)) + kRight + 1, length);
  }
  // The same of all queries together.
  KV_DEVICE int first(int sequence, int length) const { return first(sequence, length, 0); }
  KV_DEVICE int end(int sequence, int length) const { return end(sequence, length, kQueries - 1); }
};

}  // namespace kv
