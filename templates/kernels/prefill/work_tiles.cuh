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
// its own sequence alone, so results do not depend on what else is in the batch. A split has about
// SchedulerArgs::split_boundary_tiles tiles of tokens, at least.
//
// All warps of a block walk through the same list, each for itself. Where numbers of queries are known at run time
// only, kernels/prefill/varlen.cuh makes the list, blocks take work tiles as they come to them, and one warp finds
// them.
// SPDX-License-Identifier: MIT
#pragma once
#include "args/attention.cuh"
#include "args/splits.cuh"
#include "args/tokens.cuh"
#include "device/simt.cuh"
#include "kernels/decode/stage_tile.cuh"

namespace kv {

struct WorkTile {
  int number,            // of the work tile in the call: its counter
      slot,              // of the partial result of its first split
      split, splits,     // which of its splits a block has
      sequence, head,    // KV head
      first_row,         // of the query rows of that head
      query_shift,       // what is added to the number of a query to get its row of q and out
      length,            // tokens of the sequence
      first_tile,        // tiles of kTokens tokens: the first that any of the rows sees,
      end_tile,          // and the one behind the last
      first_whole_tile,  // of these, tiles that all of the rows see whole: the first,
      end_whole_tile;    // and the one behind the last
};

// Tokens of a sequence.
KV_DEVICE int length_of(const SchedulerArgs& args, int sequence) {
  return clamp_to(args.lengths ? args.lengths[sequence] : args.tokens, args.tokens);
}

// A place of the list: a split of a work tile. Heads are inside query tiles, and query tiles go from the last rows of a
// head to the first.
struct ListItem {
  int sequence, rows,  // query rows of a KV head of the sequence
      tile, number,    // work tile of the sequence; of the call
      split, splits,   // splits that blocks have for it; it may need fewer
      query_shift;     // as in WorkTile
};
// The list of a plan with a fixed number of queries. All sequences have the same work tiles.
template <class Plan>
struct PlainList {
  const SchedulerArgs& args;
  // False behind the end of the list.
  KV_DEVICE bool find(int i, ListItem& item) const {
    const int splits = int(args.splits_per_head), tile = i / splits, heads = args.sequences * args.kv_heads;
    if (tile >= heads * kTilesOfHead) return false;
    const int head = tile % heads;
    item = {head / args.kv_heads,
            Plan::kAllRows,
            tile / heads * args.kv_heads + head % args.kv_heads,
            tile,
            i % splits,
            splits,
            0};
    return true;
  }

 private:
  static constexpr int kTilesOfHead = (Plan::kAllRows + Plan::kRows - 1) / Plan::kRows;
};
// Plans with run-time query lengths have an overload in kernels/prefill/varlen.cuh.
template <class Plan, class Args>
KV_DEVICE PlainList<Plan> list_of(const Args& args) {
  return {args.scheduler};
}

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

// The tokens of a sequence that the rows of a work tile see. Where every token is seen by some row of the call: all.
template <class Plan, class Range>
KV_DEVICE TokenRange seen_by_rows(const Range& range, const WorkTile& work) {
  if constexpr (LeavesTokens<Range>) {
    const int end_row = work.first_row + Plan::kRows < Plan::kAllRows ? work.first_row + Plan::kRows : Plan::kAllRows;
    const int first = range.first(work.sequence, work.length, work.first_row / Plan::kGroup),
              end = range.end(work.sequence, work.length, (end_row - 1) / Plan::kGroup);
    return {first, end > first ? end : first};
  } else {
    return {0, work.length};
  }
}

// The tokens that a launch attends to: all that its rows see. Plans over chunks of the context have an overload in
// kernels/prefill/context_chunks.cuh.
struct WholeContext {
  KV_DEVICE int first(int token) const { return token; }
  KV_DEVICE int end(int token) const { return token; }
  KV_DEVICE int stored_from() const { return 0; }  // the token of the first stored row
};
template <class Plan, class Args>
KV_DEVICE WholeContext context_of(const Args&) {
  return {};
}

// The places of the list that a block has, one a round. Plans with run-time query lengths have an overload of order_of
// in kernels/prefill/varlen.cuh.
struct EvenOddOrder {
  int blocks;
  template <class Finder>
  KV_DEVICE int place(const Finder&, int round) const {
    return round * blocks + (round % 2 ? blocks - 1 - block_x() : block_x());
  }
};
template <class Plan, class Args>
KV_DEVICE EvenOddOrder order_of(const Args& args) {
  return {args.scheduler.blocks};
}

template <class Plan, class Range, class List, class Context>
class WorkTiles {
 public:
  KV_DEVICE WorkTiles(const SchedulerArgs& args, const Range& range, const List& list, const Context& context)
      : args_(args), range_(range), list_(list), context_(context) {}

  KV_DEVICE int size() const { return list_.size(); }
  // Place i of the list; false behind its end. A split that the work tile does not need has no tokens and no rows.
  KV_DEVICE bool at(int i, WorkTile& work) const {
    constexpr int kTokens = Plan::kTokens, kGroup = Plan::kGroup;
    ListItem item;
    if (!list_.find(i, item)) return false;
    const int last_tile = (item.rows + Plan::kRows - 1) / Plan::kRows - 1;
    const int first_row = Plan::kAllRows - item.rows + (last_tile - item.tile / args_.kv_heads) * Plan::kRows;
    const int length = length_of(args_, item.sequence);
    const int end_row = first_row + Plan::kRows < Plan::kAllRows ? first_row + Plan::kRows : Plan::kAllRows;
    const int first_query = first_row / kGroup, last_query = (end_row - 1) / kGroup;
    const int first = context_.first(range_.first(item.sequence, length, first_query)),
              end = context_.end(range_.end(item.sequence, length, last_query));
    const int first_tile = end > first ? first / kTokens : 0,
              tiles = end > first ? (end + kTokens - 1) / kTokens - first_tile : 0;
    const int useful = int(useful_splits(u32(tiles), u32(args_.split_boundary_tiles))),
              splits = useful < item.splits ? useful : item.splits;
    const int head = item.tile % args_.kv_heads;
    work = {0, 0, 0, 1, item.sequence, head, Plan::kAllRows, item.query_shift, 0, 0, 0, 0, 0};
    if (item.split >= splits) return true;
    work.number = item.number, work.slot = i - item.split, work.split = item.split, work.splits = splits;
    work.first_row = first_row, work.length = length;
    work.first_tile = first_tile + tiles * item.split / splits;
    work.end_tile = first_tile + tiles * (item.split + 1) / splits;
    work.first_whole_tile = (range_.first(item.sequence, length, last_query) + kTokens - 1) / kTokens;
    work.end_whole_tile = range_.end(item.sequence, length, first_query) / kTokens;
    return true;
  }

 private:
  const SchedulerArgs& args_;
  Range range_;
  List list_;
  Context context_;
};
template <class Plan, class Args>
KV_DEVICE auto work_tiles_of(const Args& args) {
  using Range = decltype(range_of<Plan>(args));
  using List = decltype(list_of<Plan>(args));
  using Context = decltype(context_of<Plan>(args));
  return WorkTiles<Plan, Range, List, Context>(args.scheduler, range_of<Plan>(args), list_of<Plan>(args),
                                               context_of<Plan>(args));
}

}  // namespace kv
