// The launch of prefill: see prefill.hpp.
// SPDX-License-Identifier: MIT
#include "runtime/launch/prefill.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "args/splits.cuh"
#include "runtime/base/sizes.hpp"
#include "runtime/launch/tile_schedule.hpp"

namespace kvjit {
namespace {

constexpr int kCpuBlocks = 4;  // the CPU back-end has no multiprocessors; some calls of tests are split
// Tiles of tokens of a split on the CPU back-end, about, at least: few, so that short contexts of tests are split.
constexpr kv::u32 kLeastCpuSplitTiles = 2;
// The last counter is that of tickets.
constexpr long long kMostCounters = kCounterBytes / sizeof(kv::u32) - 1;

// Work tiles of a sequence with so many queries: prefill_rows query rows of one KV head each.
long long work_tiles(const ProgramSource& source, const AttentionCall& call, long long queries) {
  return ceil_div(queries * source.q_heads_per_kv, std::max(source.prefill_rows, 1)) *
         static_cast<long long>(call.kv_heads);
}

kv::u32 least_split_tiles(const ProgramSource& source, const DeviceInfo& device) {
  return device.is_gpu ? static_cast<kv::u32>(source.prefill_splits.least_tiles) : kLeastCpuSplitTiles;
}
long long multiprocessors(const DeviceInfo& device) { return device.is_gpu ? device.multiprocessors : kCpuBlocks; }

// KV splits of each work tile of a sequence that has so many.
long long splits_of(const DeviceInfo& device, long long tiles) {
  const long long blocks = multiprocessors(device);
  return tiles >= 2 * blocks ? 1 : kv::work_tile_splits(static_cast<kv::u32>(tiles), static_cast<kv::u32>(blocks));
}

// Queries of a sequence that takes prefill, at least.
int least_queries(const ProgramSource& source, const AttentionCall& call) {
  return call.many_rows == ManyRows::prefill ? 1 : source.least_prefill_queries;
}

bool splits_prefill(const ProgramSource& source, const AttentionCall& call) {
  return work_tile_count(source, call) <= kMostCounters;
}

// KV splits of a work tile, at most, by the work tiles of its sequence.
int listed_splits(const ProgramSource& source, const DeviceInfo& device, const AttentionCall& call) {
  const long long most = std::max(work_tiles(source, call, queries_of(source, call)), 1ll);
  if (!call.query_starts) return static_cast<int>(splits_of(device, most));
  long long splits = 1;  // the numbers of queries are on the device: those that are split most
  for (long long tiles = work_tiles(source, call, least_queries(source, call));
       tiles <= most && tiles < 2 * multiprocessors(device); tiles += call.kv_heads)
    splits = std::max(splits, splits_of(device, tiles));
  return static_cast<int>(splits);
}

// Whether prefill has blocks for three quarters of the device. With fewer, decode is faster, which splits a sequence
// into as many ranges of tokens as there are multiprocessors (generator/kernels/prefill/plan.cpp).
// Where lengths are in device memory, sequences may be short, so splits do not count.
bool fills_device(const ProgramSource& source, const DeviceInfo& device, const AttentionCall& call) {
  const long long splits = call.lengths ? 1 : prefill_splits(source, device, call);
  const long long most = multiprocessors(device),
                  blocks = call.blocks > 0 ? std::min<long long>(call.blocks, most) : most;
  return 4 * work_tile_count(source, call) * splits >= 3 * blocks;
}

}  // namespace

// A work tile has rows of one sequence, so in a ragged batch each sequence may have one more than its rows fill.
long long work_tile_count(const ProgramSource& source, const AttentionCall& call) {
  if (!call.query_starts) return work_tiles(source, call, queries_of(source, call)) * call.sequences;
  const long long filled = call.query_rows * source.q_heads_per_kv / std::max(source.prefill_rows, 1);
  return (filled + call.sequences) * call.kv_heads;
}

Result<bool> takes_prefill(const ProgramSource& source, const DeviceInfo& device, const AttentionCall& call) {
  const bool has_prefill = source.kernels.count(Role::prefill) != 0;
  if (call.many_rows == ManyRows::prefill && !has_prefill)
    return fail(Code::unsupported, fmt::format("program {} has no prefill kernel", source.id), {},
                {"`kvjit explain` says why"});
  const bool has_counters = !source.prefill_splits.alternates || splits_prefill(source, call);
  if (call.many_rows == ManyRows::prefill && !has_counters)
    return fail(Code::unsupported,
                fmt::format("prefill of {} work tiles of up to 64 query rows; {} at most are merged in a call",
                            work_tile_count(source, call), kMostCounters),
                {}, {"decode, or calls of fewer sequences"});
  if (has_prefill && source.kernels.count(Role::decode) == 0) return true;  // a bucket
  if (call.many_rows == ManyRows::two_pass) return false;
  if (!has_prefill || call.many_rows != ManyRows::chosen) return has_prefill && call.many_rows == ManyRows::prefill;
  if (!device.is_gpu || !has_counters) return false;  // it is chosen for speed alone
  return source.prefill_choice == PrefillChoice::always ||
         (source.prefill_choice == PrefillChoice::if_full && fills_device(source, device, call));
}

Result<bool> takes_two_passes(const ProgramSource& source, const DeviceInfo& device, const AttentionCall& call) {
  if (call.many_rows == ManyRows::two_pass) {
    if (source.second_pass.empty())
      return fail(Code::unsupported, fmt::format("program {} has no prefill in two passes", source.id), {},
                  {"`kvjit explain` says why"});
    if (call.query_starts)
      return fail(Code::unsupported, "prefill in two passes of a ragged batch: its sequences may have few queries", {},
                  {"calls in which all sequences have the same number of queries"});
    return true;
  }
  return call.many_rows == ManyRows::chosen && device.is_gpu && !call.query_starts &&
         source.least_two_pass_queries > 0 && queries_of(source, call) >= source.least_two_pass_queries;
}

int prefill_splits(const ProgramSource& source, const DeviceInfo& device, const AttentionCall& call) {
  if (!splits_prefill(source, call)) return 1;
  // The kernel makes no more of them than the tokens of a sequence are worth, which are at most call.tokens.
  const auto tiles = static_cast<kv::u32>(ceil_div(call.tokens, source.prefill_splits.tile_tokens));
  const auto useful = static_cast<int>(kv::useful_splits(tiles, least_split_tiles(source, device)));
  return std::min(useful, listed_splits(source, device, call));
}

kv::SchedulerArgs prefill_schedule(const ProgramSource& source, const DeviceInfo& device, const AttentionCall& call) {
  kv::SchedulerArgs schedule{};
  schedule.lengths = call.lengths;
  schedule.tokens = call.tokens, schedule.sequences = call.sequences, schedule.kv_heads = call.kv_heads;
  const int splits = prefill_splits(source, device, call);
  schedule.splits_per_head = static_cast<kv::u32>(splits);
  schedule.split_boundary_tiles = least_split_tiles(source, device);
  const long long most = call.blocks > 0 ? call.blocks : multiprocessors(device);
  schedule.blocks = static_cast<int>(std::clamp(work_tile_count(source, call) * splits, 1ll, most));
  return schedule;
}

void list_splits(const ProgramSource& source, const DeviceInfo& device, const AttentionCall& call,
                 kv::VarlenArgs& varlen) {
  varlen.split_count = 0;
  if (!splits_prefill(source, call)) return;
  for (long long tiles = call.kv_heads;
       tiles < 2 * multiprocessors(device) && varlen.split_count < static_cast<int>(std::size(varlen.splits));
       tiles += call.kv_heads)
    varlen.splits[varlen.split_count++] = static_cast<kv::u8>(splits_of(device, tiles));
}

long long prefill_slots(const ProgramSource& source, const DeviceInfo& device, const AttentionCall& call) {
  if (source.kernels.count(Role::prefill) == 0) return 0;
  const int splits = prefill_splits(source, device, call);
  if (splits == 1 && !source.prefill_splits.alternates) return 0;
  const long long slots = work_tile_count(source, call) * splits;
  if (!call.query_starts) return slots;
  const long long sequences = std::min<long long>(call.sequences, call.query_rows / least_queries(source, call) + 1);
  return std::min(slots, sequences * kv::kMostSplitRounds * multiprocessors(device));
}

}  // namespace kvjit
