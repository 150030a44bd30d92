// The rule by which blocks share the work tiles of prefill, for host and device. It takes numbers of one sequence and
// of the device alone, so a sequence has the same splits, and the same bits, in any batch.
// SPDX-License-Identifier: MIT
#pragma once
#include "args/types.cuh"
#include "device/shared_functions.cuh"

namespace kv {

constexpr u32 kMostWorkTileSplits = 15;  // a counter has four bits for a warp
constexpr u32 kMostSplitRounds = 3;      // splits of a sequence for each block, at most: they take workspace

// KV splits of a work tile that its tiles of tokens are worth: each has about `least` of them, or more.
KV_SHARED u32 useful_splits(u32 tiles, u32 least) {
  const u32 useful = (tiles + least / 2) / least;
  return useful > 1 ? useful : 1;
}

// KV splits of a work tile, where a sequence has `tiles` work tiles in all its heads and runs on `blocks` blocks: the
// number that finishes them first. Times are in units of a work tile / 10,000. Splits are stored and merged, which
// takes 600 once and 40 for each. Both are estimates, by which 64 work tiles are split in two on 132 blocks, and 120
// are not split.
KV_SHARED u32 work_tile_splits(u32 tiles, u32 blocks) {
  if (tiles >= 2 * blocks) return 1;
  u32 best = 1, least = (tiles + blocks - 1) / blocks * 10000;
  KV_SHARED_LOOP
  for (u32 splits = 2; splits <= kMostWorkTileSplits && tiles * splits <= kMostSplitRounds * blocks; ++splits) {
    const u32 time = (tiles * splits + blocks - 1) / blocks * 10000 / splits + 600 + 40 * splits;
    if (time < least) best = splits, least = time;
  }
  return best;
}

}  // namespace kv
