// decode and merge with run-time query lengths (args/varlen.cuh). The rows of a KV head are numbered backwards, from
// its last query on, so the rows that exist come first. A block that has a KV split of a sequence first moves the
// places of its rows, and then attends as if the plan had a fixed number of queries. Splits of sequences that the
// kernel leaves alone, and of query chunks without rows, are passed over.
// SPDX-License-Identifier: MIT
#pragma once
#include "kernels/decode/query_chunks.cuh"
#include "kernels/decode/query_ranges.cuh"
#include "kernels/decode/split_merge.cuh"
#include "kernels/decode/tile_scheduler.cuh"

namespace kv {

// The query chunk of a scheduler head. How many rows its KV head has is in shared memory, from attend_split on.
template <class Plan>
requires(Plan::kIsVarlen) struct QueryChunk<Plan> {
  int head,       // the KV head
      first_row;  // the chunk's first row, among those of the KV head

  KV_DEVICE explicit QueryChunk(int scheduler_head)
      : head(scheduler_head / Plan::kQueryChunks), first_row(scheduler_head % Plan::kQueryChunks * Plan::kRows) {}
  KV_DEVICE bool has(int row) const { return first_row + row < int(load_shared_u32(Plan::kRowCountAt)); }
  KV_DEVICE int query(int row) const { return Plan::kQueries - 1 - (first_row + row) / Plan::kGroup; }
  KV_DEVICE int query_head(int row) const { return head * Plan::kGroup + (first_row + row) % Plan::kGroup; }
};

// Stores how many rows a KV head of the sequence has. False, for the whole block, if the scheduler head has none.
template <class Plan>
KV_DEVICE bool publish_rows(const QueryRange& range, int scheduler_head) {
  const int rows = range.count * Plan::kGroup;
  if (!warp_uniform(QueryChunk<Plan>(scheduler_head).first_row < rows)) return false;
  if (thread() == 0) store_shared_u32(Plan::kRowCountAt, u32(rows));
  sync_block();
  return true;
}

// Overloads for run-time query lengths, chosen because they ask for more of their arguments.
template <class Plan, HasAllSequences Args, class TileScheduler>
KV_DEVICE void attend_split(const Args& args, TileScheduler& scheduler, KvSplit& split) {
  const QueryRange range = query_range(args.varlen, split.sequence);
  if (!publish_rows<Plan>(range, split.head)) return;
  attend_split<Plan>(args_of_sequence<Plan>(args, range, split.sequence), scheduler, split);
}
template <class Plan, HasAllSequences Args>
KV_DEVICE void merge(const Args& args) {
  pdl_trigger();
  pdl_wait();
  const QueryRange range = query_range(args.varlen, block_z());
  if (publish_rows<Plan>(range, block_y())) merge<Plan>(args_of_sequence<Plan>(args, range, block_z()));
}
template <class Plan, HasVarlen Args, class Tokens>
KV_DEVICE auto scheduler_of_taken(const Args& args, const Tokens& tokens) {
  return TileScheduler<Plan::kTile, TakenTokens<Tokens>>(args.scheduler, TakenTokens<Tokens>(tokens, args.varlen));
}
template <class Plan, HasVarlen Args>
KV_DEVICE auto scheduler_of(const Args& args) {
  return scheduler_of_taken<Plan>(args, AllTokens{});
}
template <class Plan, HasVarlen Args>
KV_DEVICE auto scheduler_of(const Featured<Args>& args) {
  return scheduler_of_taken<Plan>(args, typename Plan::Feature::Range(args.features));
}
// Query starts may be written by the previous kernel, and lengths_changed() does not ask for them.
template <class Plan, HasVarlen Args>
KV_DEVICE bool may_read_lengths_early(const Args& args) {
  return !args.varlen.query_starts &&
         (!args.scheduler.lengths || args.scheduler.sequences <= TileScheduler<Plan::kTile>::kRemembered);
}
template <class Plan, HasVarlen Args>
KV_DEVICE bool may_read_lengths_early(const Featured<Args>& args) {
  return may_read_lengths_early<Plan>(static_cast<const Args&>(args)) && !args.features.position_offsets &&
         !args.features.token_ranges;
}

}  // namespace kv
