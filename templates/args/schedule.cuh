// The rule by which the tiles of a call are shared among blocks, for host and device. The host applies it where it
// knows all lengths (runtime/launch/tile_schedule.cpp). Where lengths are in device memory, each block applies it by
// itself (kernels/decode/tile_scheduler.cuh), and all blocks come to the same schedule. The caller counts tiles.
// SPDX-License-Identifier: MIT
#pragma once
#include "args/attention.cuh"
#include "device/shared_functions.cuh"

namespace kv {

// Tiles of one head of each sequence, padded to a multiple that the caller names.
struct TileCount {
  u32 sum,   // over all sequences
      most;  // of the longest sequence
};

// A schedule: the tiles of all batch-heads are numbered through, and each block takes a range of the numbers.
struct Schedule {
  u32 tiles_per_block,       // tiles of a block
      blocks_with_one_more;  // how many blocks, from block 0 on, take one tile more
  u32 multiple,              // the tiles of each batch-head are padded to a multiple of this
      end;                   // the tiles of the call, padding included
};

KV_SHARED u32 larger_of(u32 a, u32 b) { return a > b ? a : b; }
KV_SHARED u32 padded(u32 tiles, u32 multiple) {
  return multiple == 1 ? tiles : (tiles + multiple - 1) / multiple * multiple;
}

// Tiles that a block may have beyond the even cut so that no split boundary is left: as many as a boundary costs, or a
// sixteenth of the tiles per block, since memory is as busy without a sixteenth of the blocks.
KV_SHARED u32 schedule_slack(const SchedulerArgs& args, u32 tiles_per_block) {
  return larger_of(args.split_boundary_tiles, tiles_per_block / 16);
}

// Chooses the schedule, with the even cut as the fallback: all tiles / blocks, and one more for the first blocks.
// (1) More batch-heads than blocks: each block takes `whole` batch-heads, all padded to the longest.
// (2) Else a binary search finds, to a sixteenth, the smallest tiles per block at which every batch-head begins with a
//     block of its own and the blocks suffice. It starts at the even cut. If it takes no more than a merge round
//     longer, it starts where the longest batch-head has at most kSplitsAtOnce splits.
// Either choice is taken only if it exceeds the even cut by no more than schedule_slack().
//
// Tiles is a struct with `TileCount count(u32 multiple)` and `bool uniform(bool)`. On the device the latter is
// warp_uniform; on the host it returns its argument. `args` gives kv_heads, blocks and the numbers behind them.
template <class Tiles>
KV_SHARED Schedule choose_schedule(const SchedulerArgs& args, const Tiles& tiles) {
  Schedule schedule{0, 0, 1, 0};  // one variable for all returns: with several, some kernels of 128 registers spill
  const u32 heads = u32(args.kv_heads), blocks = u32(args.blocks);
  u32 least = 1,     // fewer tiles per block do not do
      multiple = 1,  // the fewest tiles per block that were found to do
      end = 0;       // the tiles of the call, padded to that multiple
  KV_SHARED_LOOP
  for (u32 candidate = 1; true;) {
    const TileCount count = tiles.count(candidate);
    const u32 all = count.sum * heads;
    if (tiles.uniform(end == 0)) {  // the first pass counts without padding
      schedule = {all / blocks, all % blocks, 1, all};
      end = all;
      if (args.splits_per_head == 0) {
        const u32 whole = args.heads_per_block * count.most;
        if (whole <= schedule.tiles_per_block + schedule_slack(args, schedule.tiles_per_block))
          schedule = {whole, 0, count.most, u32(args.sequences) * heads * count.most};
        return schedule;
      }
      least = schedule.tiles_per_block + (schedule.blocks_with_one_more > 0 ? 1 : 0);
      const u32 few = (count.most + kSplitsAtOnce - 1) / kSplitsAtOnce;
      if (few <= least + args.merge_round_tiles) least = larger_of(least, few);
      candidate = larger_of(least, (count.most + args.splits_per_head - 1) / args.splits_per_head);  // always does
      continue;
    }
    if (all <= blocks * candidate)
      multiple = candidate, end = all;
    else
      least = candidate + 1;
    if (tiles.uniform(multiple <= least + multiple / 16)) break;
    candidate = (least + multiple) / 2;
  }
  if (multiple <= schedule.tiles_per_block + schedule_slack(args, schedule.tiles_per_block))
    schedule = {multiple, 0, multiple, end};
  return schedule;
}

}  // namespace kv
