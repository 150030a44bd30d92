// The launch of prefill: see prefill.hpp.
// SPDX-License-Identifier: MIT
#include "runtime/launch/prefill.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/sizes.hpp"

namespace kvjit {
namespace {

constexpr int kCpuBlocks = 4;    // the CPU back-end has no multiprocessors; some calls of tests are split
constexpr int kMostSplits = 15;  // a counter has four bits for a warp
// Splits cost time to be stored and merged, in shares of the time of a work tile: kMergeCost once, kSplitCost for each.
// Both are estimates, by which 64 work tiles are split in two on 132 multiprocessors, and 120 are not split.
constexpr double kMergeCost = 0.06, kSplitCost = 0.004;
constexpr long long kMostCounters = kCounterBytes / sizeof(kv::u32);

// Work tiles of a sequence: prefill_rows query rows of one KV head each.
long long work_tiles(const ProgramSource& source, const AttentionCall& call) {
  return ceil_div(source.query_rows(), std::max(source.prefill_rows, 1)) * static_cast<long long>(call.kv_heads);
}

long long multiprocessors(const DeviceInfo& device) { return device.is_gpu ? device.multiprocessors : kCpuBlocks; }

}  // namespace

Result<bool> takes_prefill(const ProgramSource& source, const DeviceInfo& device, const AttentionCall& call) {
  const bool has_prefill = source.kernels.count(Role::prefill) != 0;
  if (call.many_rows == ManyRows::prefill && !has_prefill)
    return fail(Code::unsupported, fmt::format("program {} has no prefill kernel", source.id), {},
                {"`kvjit explain` says why"});
  if (!has_prefill || call.many_rows != ManyRows::chosen) return has_prefill && call.many_rows == ManyRows::prefill;
  return device.is_gpu && source.chooses_prefill;  // it is chosen for speed alone
}

// The number that finishes the work tiles of one sequence first, where blocks have a multiprocessor each.
int prefill_splits(const ProgramSource& source, const DeviceInfo& device, const AttentionCall& call) {
  const long long tiles = std::max(work_tiles(source, call), 1ll), blocks = multiprocessors(device);
  if (tiles >= 2 * blocks || tiles * call.sequences > kMostCounters) return 1;
  int best = 1;
  double least = 0;
  for (int splits = 1; splits <= kMostSplits; ++splits) {
    const double time = static_cast<double>(ceil_div(tiles * splits, blocks)) / splits +
                        (splits > 1 ? kMergeCost + kSplitCost * splits : 0);
    if (splits == 1 || time < least) best = splits, least = time;
  }
  return best;
}

kv::SchedulerArgs prefill_schedule(const ProgramSource& source, const DeviceInfo& device, const AttentionCall& call) {
  kv::SchedulerArgs schedule{};
  schedule.lengths = call.lengths;
  schedule.tokens = call.tokens, schedule.sequences = call.sequences, schedule.kv_heads = call.kv_heads;
  const int splits = prefill_splits(source, device, call);
  schedule.splits_per_head = static_cast<kv::u32>(splits);
  const long long most = call.blocks > 0 ? call.blocks : multiprocessors(device);
  schedule.blocks = static_cast<int>(std::clamp(work_tiles(source, call) * call.sequences * splits, 1ll, most));
  return schedule;
}

long long prefill_slots(const ProgramSource& source, const DeviceInfo& device, const AttentionCall& call) {
  if (source.kernels.count(Role::prefill) == 0) return 0;
  const int splits = prefill_splits(source, device, call);
  return splits == 1 ? 0 : work_tiles(source, call) * call.sequences * splits;
}

}  // namespace kvjit
