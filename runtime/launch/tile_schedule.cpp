// The host's half of the decode tile scheduler: see tile_schedule.hpp. All arithmetic is in tiles; times become tiles
// through SchedulerTiming::read_bytes_per_us (specs/archs).
// SPDX-License-Identifier: MIT
#include "runtime/launch/tile_schedule.hpp"

#include <algorithm>

#include "args/schedule.cuh"
#include "runtime/base/sizes.hpp"

namespace kvjit {
namespace {

// Tiles of a batch-head above which the CPU back-end uses more blocks than batch-heads, so that some are split.
constexpr long long kTilesBeforeCpuSplits = 4;

// Batch-heads of a call. At least 1, because calls are counted before they are checked.
long long batch_heads(const ProgramSource& source, const AttentionCall& call) {
  return std::max(call.sequences * scheduler_heads(source, call), 1ll);
}

// Tiles that a block reads in `us` microseconds. On the CPU back-end: a fixed number, so that tests reach both kinds of
// schedule.
kv::u32 tiles_in(const ProgramSource& source, const DeviceInfo& device, double us, kv::u32 on_cpu) {
  const long long tile = source.tile_tokens * static_cast<long long>(source.k.row_bytes + source.v.row_bytes) *
                         std::max(source.token_heads, 1);
  constexpr double kMost = 1 << 30;  // a sum of two such numbers fits in 32 bits
  const double tiles = us * source.timing.read_bytes_per_us / static_cast<double>(std::max(tile, 1ll));
  return device.is_gpu ? static_cast<kv::u32>(std::min(tiles, kMost)) : on_cpu;
}

// Counts tiles for kv::choose_schedule, where all sequences have the same tiles.
struct EqualSequences {
  kv::u32 sequences, tiles;
  kv::TileCount count(kv::u32 multiple) const {
    const kv::u32 each = kv::padded(tiles, multiple);
    return {sequences * each, each};
  }
  static bool uniform(bool v) { return v; }
};

// The schedule if every sequence has `call.tokens` tokens. Blocks that the padding leaves without tiles are not
// launched.
kv::SchedulerArgs even_schedule(const ProgramSource& source, const DeviceInfo& device, const AttentionCall& call) {
  kv::SchedulerArgs schedule{};
  schedule.tokens = call.tokens, schedule.sequences = call.sequences;
  schedule.kv_heads = static_cast<int>(scheduler_heads(source, call));
  schedule.blocks = most_blocks(source, device, call);
  const auto count = static_cast<kv::u32>(batch_heads(source, call)), blocks = static_cast<kv::u32>(schedule.blocks);
  schedule.splits_per_head = blocks / count, schedule.heads_per_block = static_cast<kv::u32>(ceil_div(count, blocks));
  schedule.split_boundary_tiles = tiles_in(source, device, source.timing.split_boundary_us, 1),
  schedule.merge_round_tiles = tiles_in(source, device, source.timing.merge_round_us, 0);
  const auto tiles_per_head = static_cast<kv::u32>(tiles(source, call) / count);
  const kv::Schedule chosen =
      kv::choose_schedule(schedule, EqualSequences{static_cast<kv::u32>(call.sequences), tiles_per_head});
  schedule.tiles_per_head = kv::padded(tiles_per_head, chosen.multiple);
  schedule.tiles_per_block = chosen.tiles_per_block, schedule.blocks_with_one_more = chosen.blocks_with_one_more;
  if (chosen.blocks_with_one_more > 0) return schedule;
  schedule.blocks = static_cast<int>(ceil_div(chosen.end, chosen.tiles_per_block));
  if (schedule.tiles_per_head % chosen.tiles_per_block == 0)
    schedule.splits_per_head = schedule.tiles_per_head / chosen.tiles_per_block;
  return schedule;
}

// Splits of one batch-head, at most, under that schedule.
long long most_splits(const kv::SchedulerArgs& even) {
  if (even.blocks_with_one_more == 0 && even.tiles_per_block % even.tiles_per_head == 0) return 1;
  if (even.blocks_with_one_more == 0 && even.tiles_per_head % even.tiles_per_block == 0)
    return even.tiles_per_head / even.tiles_per_block;
  return std::min<long long>(ceil_div(even.tiles_per_head, even.tiles_per_block) + 1, even.blocks);
}

}  // namespace

int queries_of(const ProgramSource& source, const AttentionCall& call) {
  return source.varlen ? call.queries : source.query_length;
}

long long query_rows(const ProgramSource& source, const AttentionCall& call) {
  return call.query_starts ? call.query_rows : static_cast<long long>(call.sequences) * queries_of(source, call);
}

long long q_heads(const ProgramSource& source, const AttentionCall& call) {
  return static_cast<long long>(call.kv_heads) * source.q_heads_per_kv;
}

long long scheduler_heads(const ProgramSource& source, const AttentionCall& call) {
  return static_cast<long long>(call.kv_heads) / std::max(source.token_heads, 1) * source.query_chunks;
}

long long seen_tokens(const ProgramSource& source, const AttentionCall& call) {
  const long long most = source.features.most_seen(source.causal, source.query_length);
  return most < 0 ? call.tokens : std::min<long long>(most, call.tokens);
}

kv::SeenArgs seen_args(const ProgramSource& source, const AttentionCall& call) {
  const kv::FeatureArgs& features = call.features;
  return {source.features.window_left, source.features.seen_right(source.causal),
          queries_of(source, call),    features.position_offset,
          features.position_offsets,   features.token_ranges};
}

long long tiles(const ProgramSource& source, const AttentionCall& call) {
  const long long tile = std::max(source.tile_tokens, 1), all = std::max(ceil_div(call.tokens, tile), 1ll);
  // One tile more than the seen tokens fill: a window may begin and end inside a tile.
  return std::min(all, ceil_div(seen_tokens(source, call), tile) + 1) * batch_heads(source, call);
}

int most_blocks(const ProgramSource& source, const DeviceInfo& device, const AttentionCall& call) {
  const long long most = std::clamp(tiles(source, call), 1ll, static_cast<long long>(kMostBlocks));
  long long wanted = call.blocks;
  if (wanted <= 0 && device.is_gpu)
    wanted = device.multiprocessors;
  else if (wanted <= 0)  // few blocks, but enough that some batch-heads are split
    wanted = tiles(source, call) > kTilesBeforeCpuSplits * batch_heads(source, call) ? 2 * batch_heads(source, call) + 1
                                                                                     : batch_heads(source, call);
  return static_cast<int>(std::clamp(wanted, 1ll, most));
}

kv::SchedulerArgs make_schedule(const ProgramSource& source, const DeviceInfo& device, const AttentionCall& call) {
  kv::SchedulerArgs schedule = even_schedule(source, device, call);
  if (!call.lengths && !source.varlen) return schedule;
  schedule.lengths = call.lengths;
  schedule.blocks = most_blocks(source, device, call);
  schedule.splits_per_head = static_cast<kv::u32>(schedule.blocks / batch_heads(source, call));
  schedule.tiles_per_head = schedule.tiles_per_block = schedule.blocks_with_one_more = 0;
  return schedule;
}

bool needs_merge_kernel(const ProgramSource& source, const DeviceInfo& device, const AttentionCall& call) {
  if (!source.fuses_merge) return true;
  if (source.merge_steps <= 1) return false;
  const long long most = most_splits(even_schedule(source, device, call));
  if (most == 1) return false;
  const auto steps = static_cast<double>(source.merge_steps * ceil_div(most, kv::kSplitsAtOnce)),
             grid = static_cast<double>(batch_heads(source, call) * source.rows * ceil_div(source.v.rotated_dim, 128));
  const SchedulerTiming& timing = source.timing;
  return timing.merge_step_us * steps > timing.merge_launch_us + timing.merge_block_us * grid;
}

}  // namespace kvjit
