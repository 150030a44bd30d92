// prefill with run-time query lengths (args/varlen.cuh): the list of work tiles is made from the queries that each
// sequence has. Sequences come one after the other, and each has its work tiles, and splits of them, in the order of
// kernels/prefill/work_tiles.cuh. A warp adds up the sequences, one a lane.
// SPDX-License-Identifier: MIT
#pragma once
#include "kernels/decode/query_ranges.cuh"
#include "kernels/prefill/work_tiles.cuh"

namespace kv {

template <class Plan>
class VarlenList {
  const SchedulerArgs& args_;
  const VarlenArgs& varlen_;

 public:
  KV_DEVICE VarlenList(const SchedulerArgs& args, const VarlenArgs& varlen) : args_(args), varlen_(varlen) {}

  KV_DEVICE bool find(int i, ListItem& item) const {
    int before = 0, tiles_before = 0;  // items, and work tiles, of the sequences ahead of these 32
    KV_NO_UNROLL
    for (int first = 0; first < args_.sequences; first += 32) {
      const int sequence = first + lane();
      QueryRange range{0, 0, 0};
      int useful = 1;
      if (sequence < args_.sequences) {
        range = query_range(varlen_, sequence);
        const int all_tiles = (length_of(args_, sequence) + Plan::kTokens - 1) / Plan::kTokens;
        useful = int(useful_splits(u32(all_tiles), u32(args_.split_boundary_tiles)));
      }
      const int rows = range.count * Plan::kGroup, head_tiles = (rows + Plan::kRows - 1) / Plan::kRows,
                tiles = head_tiles * args_.kv_heads,
                listed = head_tiles > 0 && head_tiles <= varlen_.split_count ? varlen_.splits[head_tiles - 1] : 1,
                splits = useful < listed ? useful : listed;
      int end = tiles * splits, tiles_end = tiles;  // after the scan: of all sequences up to the lane's
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
      const int own_splits = of_found(splits), at = i - before - of_found(end - tiles * splits), tile = at / own_splits;
      item = {first + passed,
              of_found(rows),
              tile,
              tiles_before + of_found(tiles_end - tiles) + tile,
              at % own_splits,
              own_splits,
              of_found(range.shift(Plan::kQueries))};
      return true;
    }
    return false;
  }
};
template <class Plan, HasVarlen Args>
KV_DEVICE VarlenList<Plan> list_of(const Args& args) {
  return {args.scheduler, args.varlen};
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
