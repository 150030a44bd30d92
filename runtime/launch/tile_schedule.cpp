// The host's half of the decode tile scheduler: see tile_schedule.hpp. All arithmetic is in tiles; times become tiles
// through SchedulerTiming::read_bytes_per_us.
// SPDX-License-Identifier: MIT
#include "runtime/launch/tile_schedule.hpp"

#include <algorithm>

#include "runtime/base/sizes.hpp"

namespace kvjit {
namespace {

constexpr SchedulerTiming kTiming{};

// Tiles of a batch-head above which the CPU back-end uses more blocks than batch-heads, so that some are split.
constexpr long long kTilesBeforeCpuParts = 4;

// Batch-heads of a call. At least 1, because calls are counted before they are checked.
long long pairs(const ProgramSource& source, const AttentionCall& call) {
  return std::max(call.sequences * pair_heads(source, call), 1ll);
}

// Tiles that a block reads in `us` microseconds. On the CPU back-end: a fixed number, so that tests reach both kinds of
// schedule.
kv::u32 tiles_in(const ProgramSource& source, const DeviceFacts& device, double us, kv::u32 on_cpu) {
  const long long tile = source.tile_tokens * static_cast<long long>(source.k.row_bytes + source.v.row_bytes) *
                         std::max(source.token_heads, 1);
  return device.is_gpu ? static_cast<kv::u32>(us * kTiming.read_bytes_per_us / static_cast<double>(std::max(tile, 1ll)))
                       : on_cpu;
}

// The schedule if every sequence has `call.tokens` tokens. Three outcomes:
//   more batch-heads than blocks   each block takes `whole` unsplit batch-heads, if its share grows by no more than the
//                                  slack; otherwise the even cut
//   at least as many blocks        each batch-head starts at a block of its own and is padded to a multiple of the
//                                  blocks' share, under the same condition; otherwise the even cut
//   even cut                       `share` tiles for each block and one more for the first `longer`
kv::WorkArgs even_work(const ProgramSource& source, const DeviceFacts& device, const AttentionCall& call) {
  kv::WorkArgs work{};
  work.tokens = call.tokens, work.sequences = call.sequences;
  work.kv_heads = static_cast<int>(pair_heads(source, call));
  work.blocks = most_blocks(source, device, call);
  const auto count = static_cast<kv::u32>(pairs(source, call)), blocks = static_cast<kv::u32>(work.blocks),
             all = static_cast<kv::u32>(tiles(source, call));
  work.room = all / count, work.share = all / blocks, work.longer = all % blocks;
  work.pieces = blocks / count, work.whole = static_cast<kv::u32>(ceil_div(count, blocks));
  work.seam = tiles_in(source, device, kTiming.seam_us, 1), work.round = tiles_in(source, device, kTiming.round_us, 0);
  // How much the longest share may exceed the even one. At least a sixteenth, because the memory is as busy without a
  // sixteenth of the multiprocessors.
  const kv::u32 slack = std::max(work.seam, work.share / 16);
  if (work.pieces == 0 && work.whole * work.room <= work.share + slack) {
    work.share = work.whole * work.room, work.longer = 0;
    work.blocks = static_cast<int>(ceil_div(count, work.whole));
  }
  if (work.pieces == 0) return work;
  // With `few` tiles a split, a batch-head has no more splits than one merge round takes. That is worth a longer share
  // if the excess costs no more than another round.
  const auto few = static_cast<kv::u32>(ceil_div(work.room, kv::kPartsAtOnce));
  kv::u32 least = work.share + (work.longer > 0);
  if (few <= least + work.round) least = std::max(least, few);
  const kv::u32 unit = std::max(least, static_cast<kv::u32>(ceil_div(work.room, work.pieces)));
  if (unit > work.share + slack) return work;
  work.pieces = static_cast<kv::u32>(ceil_div(work.room, unit));
  work.room = work.pieces * unit, work.share = unit, work.longer = 0;
  work.blocks = static_cast<int>(work.pieces * count);
  return work;
}

// Splits of one batch-head, at most, under that schedule.
long long parts(const kv::WorkArgs& even) {
  if (even.longer == 0 && even.share % even.room == 0) return 1;
  if (even.longer == 0 && even.room % even.share == 0) return even.room / even.share;
  return std::min<long long>(ceil_div(even.room, even.share) + 1, even.blocks);
}

}  // namespace

long long q_heads(const ProgramSource& source, const AttentionCall& call) {
  return static_cast<long long>(call.kv_heads) * source.q_heads_per_kv;
}

long long pair_heads(const ProgramSource& source, const AttentionCall& call) {
  return static_cast<long long>(call.kv_heads) / std::max(source.token_heads, 1) * source.turns;
}

long long seen_tokens(const ProgramSource& source, const AttentionCall& call) {
  const long long most = source.features.most_seen(source.causal, source.query_length);
  return most < 0 ? call.tokens : std::min<long long>(most, call.tokens);
}

long long tiles(const ProgramSource& source, const AttentionCall& call) {
  const long long tile = std::max(source.tile_tokens, 1), all = std::max(ceil_div(call.tokens, tile), 1ll);
  // One tile more than the seen tokens fill: a window may begin and end inside a tile.
  return std::min(all, ceil_div(seen_tokens(source, call), tile) + 1) * pairs(source, call);
}

int most_blocks(const ProgramSource& source, const DeviceFacts& device, const AttentionCall& call) {
  const long long most = std::clamp(tiles(source, call), 1ll, static_cast<long long>(kMostBlocks));
  long long wanted = call.blocks;
  if (wanted <= 0 && device.is_gpu)
    wanted = device.multiprocessors;
  else if (wanted <= 0)  // few blocks, but enough that some batch-heads are split
    wanted = tiles(source, call) > kTilesBeforeCpuParts * pairs(source, call) ? 2 * pairs(source, call) + 1
                                                                              : pairs(source, call);
  return static_cast<int>(std::clamp(wanted, 1ll, most));
}

kv::WorkArgs share_work(const ProgramSource& source, const DeviceFacts& device, const AttentionCall& call) {
  kv::WorkArgs work = even_work(source, device, call);
  if (!call.lengths) return work;
  work.lengths = call.lengths;
  work.blocks = most_blocks(source, device, call);
  work.pieces = static_cast<kv::u32>(work.blocks / pairs(source, call));
  work.room = work.share = work.longer = 0;
  return work;
}

bool leaves_parts(const ProgramSource& source, const DeviceFacts& device, const AttentionCall& call) {
  if (!source.finishes) return true;
  if (source.merge_steps <= 1) return false;
  const long long most = parts(even_work(source, device, call));
  if (most == 1) return false;
  const auto steps = static_cast<double>(source.merge_steps * ceil_div(most, kv::kPartsAtOnce)),
             grid = static_cast<double>(pairs(source, call) * source.rows * ceil_div(source.v.inner_dim, 128));
  return kTiming.merge_step_us * steps > kTiming.merge_launch_us + kTiming.merge_block_us * grid;
}

}  // namespace kvjit
