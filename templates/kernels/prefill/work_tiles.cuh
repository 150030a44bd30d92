// Work tiles of prefill: kRows query rows of one KV head of one sequence, which a block attends to from the first token
// to the last that they see. Row r is query r / group of the head's query head r % group. A block takes one work tile a
// round. Causal tiles have different lengths, so the longest come first, and every second round deals them backwards:
//
//   blocks     0  1  2  3          work tiles 0 .. 9, from the longest to the shortest
//   round 0    0  1  2  3
//   round 1    7  6  5  4
//   round 2    8  9
//
// Where a sequence has few work tiles, several blocks share each of them (split-KV): each block takes a range of its
// tiles of tokens, and the splits are merged (kernels/prefill/splits.cuh). How many splits a work tile has depends on
// its own sequence alone, so results do not depend on what else is in the batch.
//
// All warps of a block walk through the same list, each for itself.
// SPDX-License-Identifier: MIT
#pragma once
#include "args/attention.cuh"
#include "device/simt.cuh"
#include "kernels/decode/stage_tile.cuh"

namespace kv {

constexpr int kLeastSplitTiles = 2;  // tiles of tokens of a split, at least

struct WorkTile {
  int number,            // of the work tile, over all heads and sequences
      split, splits,     // which of its splits a block has
      sequence, head,    // KV head
      first_row,         // of the query rows of that head
      length,            // tokens of the sequence
      first_tile,        // tiles of kTokens tokens: the first that any of the rows sees,
      end_tile,          // and the one behind the last
      first_whole_tile,  // of these, tiles that all of the rows see whole: the first,
      end_whole_tile;    // and the one behind the last
};

// The tokens that a query sees in plans without features: from the first token of its sequence on. Queries are the last
// tokens of a sequence. Plans with features have SeenRange (features/token_range.cuh).
template <class Plan>
struct PlainRange {
  KV_DEVICE int first(int, int, int) const { return 0; }
  KV_DEVICE int end(int, int length, int query) const {
    const int end = Plan::kIsCausal ? length - Plan::kQueries + query + 1 : length;
    return end < 0 ? 0 : end > length ? length : end;
  }
};
// Plans with features have an overload in kernels/prefill/features.cuh.
template <class Plan, class Args>
KV_DEVICE PlainRange<Plan> range_of(const Args&) {
  return {};
}

template <class Plan, class Range>
class WorkTiles {
 public:
  KV_DEVICE WorkTiles(const SchedulerArgs& args, const Range& range) : args_(args), range_(range) {}

  // The block's split of a work tile in a round; false behind the last round. A block without one in the last round, or
  // with a split that the work tile does not need, gets one of no tokens and no rows.
  KV_DEVICE bool at(int round, WorkTile& work) const {
    constexpr int kTokens = Plan::kTokens, kGroup = Plan::kGroup;
    const int heads = args_.sequences * args_.kv_heads, blocks = args_.blocks, most_splits = int(args_.splits_per_head),
              count = heads * kTilesOfHead * most_splits;
    if (round * blocks >= count) return false;
    const int i = round * blocks + (round % 2 ? blocks - 1 - block_x() : block_x());
    work = {0, 0, 1, 0, 0, Plan::kAllRows, 0, 0, 0, 0, 0};
    if (i >= count) return true;
    const int tile = i / most_splits, split = i % most_splits, head = tile % heads;
    const int first_row = (kTilesOfHead - 1 - tile / heads) * Plan::kRows;
    const int sequence = head / args_.kv_heads;
    const int stored = args_.lengths ? args_.lengths[sequence] : args_.tokens;
    const int length = clamp_to(stored, args_.tokens);
    const int end_row = first_row + Plan::kRows < Plan::kAllRows ? first_row + Plan::kRows : Plan::kAllRows;
    const int first_query = first_row / kGroup, last_query = (end_row - 1) / kGroup;
    const int first = range_.first(sequence, length, first_query), end = range_.end(sequence, length, last_query);
    const int first_tile = end > first ? first / kTokens : 0,
              tiles = end > first ? (end + kTokens - 1) / kTokens - first_tile : 0;
    const int useful = (tiles + kLeastSplitTiles - 1) / kLeastSplitTiles,
              splits = clamp_to(useful, most_splits) > 1 ? clamp_to(useful, most_splits) : 1;
    if (split >= splits) return true;
    work.number = tile, work.split = split, work.splits = splits;
    work.sequence = sequence, work.head = head % args_.kv_heads;
    work.first_row = first_row, work.length = length;
    work.first_tile = first_tile + tiles * split / splits;
    work.end_tile = first_tile + tiles * (split + 1) / splits;
    work.first_whole_tile = (range_.first(sequence, length, last_query) + kTokens - 1) / kTokens;
    work.end_whole_tile = range_.end(sequence, length, first_query) / kTokens;
    return true;
  }

 private:
  static constexpr int kTilesOfHead = (Plan::kAllRows + Plan::kRows - 1) / Plan::kRows;
  const SchedulerArgs& args_;
  Range range_;
};
template <class Plan, class Args>
KV_DEVICE auto work_tiles_of(const Args& args) {
  const auto range = range_of<Plan>(args);
  return WorkTiles<Plan, decltype(range_of<Plan>(args))>(args.scheduler, range);
}

}  // namespace kv
