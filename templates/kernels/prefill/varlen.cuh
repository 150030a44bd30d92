// prefill with run-time query lengths (args/varlen.cuh): the list of work tiles is made from the queries that each
// sequence has. Sequences come one after the other, and each has its work tiles, and splits of them, in the order of
// kernels/prefill/work_tiles.cuh. A warp adds up the sequences, one a lane.
// SPDX-License-Identifier: MIT
#pragma once
#include "device/warp_roles.cuh"
#include "kernels/decode/query_ranges.cuh"
#include "kernels/prefill/work_tiles.cuh"

namespace kv {

template <class Plan>
class VarlenList {
  const SchedulerArgs& args_;
  const VarlenArgs& varlen_;

  // Sequence is the share of one sequence in the list: its query rows, work tiles, and splits of each. A sequence that
  // does not exist has none.
  struct Sequence {
    int rows, tiles, splits;
    QueryRange range;
    KV_DEVICE int items() const { return tiles * splits; }
  };
  KV_DEVICE Sequence sequence_of(int sequence) const {
    QueryRange range{0, 0, 0};
    int useful = 1;
    if (sequence < args_.sequences) {
      range = query_range(varlen_, sequence);
      const int all_tiles = (length_of(args_, sequence) + Plan::kTokens - 1) / Plan::kTokens;
      useful = int(useful_splits(u32(all_tiles), u32(args_.split_boundary_tiles)));
    }
    const int rows = range.count * Plan::kGroup, head_tiles = (rows + Plan::kRows - 1) / Plan::kRows,
              listed = head_tiles > 0 && head_tiles <= varlen_.split_count ? varlen_.splits[head_tiles - 1] : 1;
    return {rows, head_tiles * args_.kv_heads, useful < listed ? useful : listed, range};
  }

 public:
  KV_DEVICE VarlenList(const SchedulerArgs& args, const VarlenArgs& varlen) : args_(args), varlen_(varlen) {}

  KV_DEVICE int size() const {
    int items = 0;
    KV_NO_UNROLL
    for (int first = 0; first < args_.sequences; first += 32) items += sequence_of(first + lane()).items();
    KV_UNROLL
    for (int step = 1; step < 32; step <<= 1) items += int(shfl_xor(u32(items), step));
    return items;
  }

  KV_DEVICE bool find(int i, ListItem& item) const {
    int before = 0, tiles_before = 0;  // items, and work tiles, of the sequences ahead of these 32
    KV_NO_UNROLL
    for (int first = 0; first < args_.sequences; first += 32) {
      const Sequence own = sequence_of(first + lane());
      int end = own.items(), tiles_end = own.tiles;  // after the scan: of all sequences up to the lane's
      KV_UNROLL
      for (int step = 1; step < 32; step <<= 1) {
        const int more = int(shfl(u32(end), lane() - step)), more_tiles = int(shfl(u32(tiles_end), lane() - step));
        if (lane() >= step) end += more, tiles_end += more_tiles;
      }
      const int passed = count_bits(ballot(before + end <= i));
      if (warp_uniform(passed == 32)) {
        before += int(shfl(u32(end), 31)), tiles_before += int(shfl(u32(tiles_end), 31));
        continue;
      }
      const auto of_found = [&](int value) { return int(shfl(u32(value), passed)); };
      const int splits = of_found(own.splits), at = i - before - of_found(end - own.items()), tile = at / splits;
      item = {first + passed,
              of_found(own.rows),
              tile,
              tiles_before + of_found(tiles_end - own.tiles) + tile,
              at % splits,
              splits,
              of_found(own.range.shift(Plan::kQueries))};
      return true;
    }
    return false;
  }
};
template <class Plan, HasVarlen Args>
KV_DEVICE VarlenList<Plan> list_of(const Args& args) {
  return {args.scheduler, args.varlen};
}

// Blocks take work tiles as they come to them, because splits of ragged batches have different lengths: the first by
// the block's number, the others by tickets. Which block has a work tile does not change its bits. A ticket behind the
// end of the list ends a block, and the last of them sets the counter back.
class TicketOrder {
  u32* const tickets_;
  const int blocks_;
  int size_ = 0;  // of the list

 public:
  KV_DEVICE TicketOrder(u32* tickets, int blocks) : tickets_(tickets), blocks_(blocks) {}

  template <class Finder>
  KV_DEVICE int place(const Finder& finder, int round) {
    if (round == 0) {
      size_ = finder.size();
      return block_x();
    }
    const u32 ticket = add_warp_arrival(tickets_, 1);
    // Blocks draw as many tickets as the list has places.
    if (warp_uniform(int(ticket) == size_ - 1) && lane() == 0) add_arrival(tickets_, 0u - u32(size_));
    return int(ticket) + blocks_;
  }
};
template <class Plan, HasVarlen Args>
KV_DEVICE TicketOrder order_of(const Args& args) {
  return {args.varlen.tickets, args.scheduler.blocks};
}

// The places of features for the queries of a work tile (kernels/prefill/features.cuh).
template <class Plan>
struct VarlenPlaces {
  const FeatureArgs& args;
  const VarlenArgs& varlen;
  int query_heads;  // of all KV heads
  KV_DEVICE FeatureArgs of(const WorkTile& work) const {
    FeatureArgs own = args;
    shift_features(own, query_range(varlen, work.sequence), work.sequence, Plan::kQueries, query_heads);
    return own;
  }
};
template <class Plan, HasVarlen Args>
KV_DEVICE VarlenPlaces<Plan> places_of(const Featured<Args>& args) {
  return {args.features, args.varlen, args.scheduler.kv_heads * Plan::kGroup};
}

}  // namespace kv
