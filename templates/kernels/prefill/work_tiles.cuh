// Work tiles of prefill: kRows query rows of one KV head of one sequence, which a block attends to from the first token
// to the last that they see. Row r is query r / group of the head's query head r % group. A block takes one work tile a
// round. Causal tiles have different lengths, so the longest come first, and every second round deals them backwards:
//
//   blocks     0  1  2  3          work tiles 0 .. 9, from the longest to the shortest
//   round 0    0  1  2  3
//   round 1    7  6  5  4
//   round 2    8  9
//
// All warps of a block walk through the same list, each for itself.
// SPDX-License-Identifier: MIT
#pragma once
#include "args/attention.cuh"
#include "device/simt.cuh"
#include "kernels/decode/stage_tile.cuh"

namespace kv {

struct WorkTile {
  int sequence, head,  // KV head
      first_row,       // of the query rows of that head
      length,          // tokens of the sequence
      tiles,           // tiles of kTokens tokens that any of the rows sees
      whole_tiles;     // of these, from the first on: tiles that all of the rows see whole
};

template <class Plan>
class WorkTiles {
 public:
  KV_DEVICE explicit WorkTiles(const SchedulerArgs& args) : args_(args) {}

  // The token behind the last that a query sees. Queries are the last tokens of a sequence.
  KV_DEVICE static int end_of(int query, int length) {
    const int end = Plan::kIsCausal ? length - Plan::kQueries + query + 1 : length;
    return end < 0 ? 0 : end > length ? length : end;
  }

  // The block's work tile of a round; false behind the last round. A block without a tile in the last round gets one of
  // no tokens and no rows.
  KV_DEVICE bool at(int round, WorkTile& tile) const {
    const int heads = args_.sequences * args_.kv_heads, count = heads * kTilesOfHead, blocks = args_.blocks;
    if (round * blocks >= count) return false;
    const int i = round * blocks + (round % 2 ? blocks - 1 - block_x() : block_x());
    if (i >= count) {
      tile = {0, 0, Plan::kAllRows, 0, 0, 0};
      return true;
    }
    tile.sequence = i % heads / args_.kv_heads, tile.head = i % heads % args_.kv_heads;
    tile.first_row = (kTilesOfHead - 1 - i / heads) * Plan::kRows;
    const int stored = args_.lengths ? args_.lengths[tile.sequence] : args_.tokens;
    tile.length = clamp_to(stored, args_.tokens);
    const int last_row = tile.first_row + Plan::kRows < Plan::kAllRows ? tile.first_row + Plan::kRows : Plan::kAllRows;
    tile.tiles = (end_of((last_row - 1) / Plan::kGroup, tile.length) + Plan::kTokens - 1) / Plan::kTokens;
    tile.whole_tiles = end_of(tile.first_row / Plan::kGroup, tile.length) / Plan::kTokens;
    return true;
  }

 private:
  static constexpr int kTilesOfHead = (Plan::kAllRows + Plan::kRows - 1) / Plan::kRows;
  const SchedulerArgs& args_;
};

}  // namespace kv
