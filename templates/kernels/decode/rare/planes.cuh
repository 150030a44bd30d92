// Loads fields of codes that few formats have, with the interface of load_plane() of kernels/decode/stage_tile.cuh.
// SPDX-License-Identifier: MIT
#pragma once
#include "device/simt.cuh"

namespace kv {

// kernels/decode/stage_tile.cuh defines it.
template <class Plane, int kSwizzle>
KV_DEVICE void load_plane(SharedAddress rows, u32 block, int read, int row_lane, u32* w);

// A field whose bytes are those of two lanes: single bits whose elements lie apart. Of each 2 kShared lanes, lane i and
// lane i + kShared load the same bytes, and the second one has the bits that are kSharedBits higher.
template <class Plane, int kSwizzle>
requires(Plane::kShared > 0) KV_DEVICE void load_plane(SharedAddress rows, u32 block, int read, int row_lane, u32* w) {
  constexpr int kShared = Plane::kShared;
  const int pairs_before = row_lane / (2 * kShared) * kShared + row_lane % kShared;
  load_plane<typename Plane::Own, kSwizzle>(rows, block, read, pairs_before, w);
  KV_UNROLL
  for (int i = 0; i < Plane::kWords; ++i) w[i] >>= row_lane / kShared % 2 * Plane::kSharedBits;
}

// A field that is a circle, of codes that overlap: a lane read has kLoadBytes bytes and the first one of the next lane
// read, behind which is the first of all. Reads are dealt to the kCircleLanes lanes of a block kCircleReads times.
template <class Plane, int kSwizzle>
requires(Plane::kCircleLanes > 0) KV_DEVICE
    void load_plane(SharedAddress rows, u32 block, int read, int row_lane, u32* w) {
  constexpr int kBytes = Plane::kLoadBytes;
  load_plane<typename Plane::Own, kSwizzle>(rows, block, read, row_lane, w);
  u32 next;
  const bool is_last = row_lane == Plane::kCircleLanes - 1;
  load_plane<typename Plane::Next, kSwizzle>(rows, block, is_last ? (read + 1) % Plane::kCircleReads : read,
                                             is_last ? 0 : row_lane + 1, &next);
  if constexpr (kBytes % 4 == 0)
    w[kBytes / 4] = next;
  else
    w[kBytes / 4] = (w[kBytes / 4] & ((1u << kBytes % 4 * 8) - 1)) | next << kBytes % 4 * 8;
}

// A short field that is a circle, of which lane reads are no whole bytes: each lane loads all of it, and turns it so
// that its own first code is at bit 0.
template <class Plane, int kSwizzle>
requires(Plane::kLoadsCircle) KV_DEVICE void load_plane(SharedAddress rows, u32 block, int read, int row_lane, u32* w) {
  constexpr int kAll = Plane::kLoadBytes / 4;
  u32 all[kAll];
  load_plane<typename Plane::Own, kSwizzle>(rows, block, read, 0, all);
  const int bit = row_lane * Plane::kLaneBits;
  const auto word = [&](int i) {  // registers cannot be indexed
    u32 chosen = all[0];
    KV_UNROLL
    for (int j = 1; j < kAll; ++j) chosen = i % kAll == j ? all[j] : chosen;
    return chosen;
  };
  KV_UNROLL
  for (int i = 0; i < Plane::kWords; ++i) w[i] = shift_right(word(bit / 32 + i), word(bit / 32 + i + 1), bit % 32);
}

}  // namespace kv
