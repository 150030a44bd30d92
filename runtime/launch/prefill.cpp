// The launch of prefill: see prefill.hpp.
// SPDX-License-Identifier: MIT
#include "runtime/launch/prefill.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/sizes.hpp"

namespace kvjit {
namespace {

// Work tiles of a call: prefill_rows query rows of one KV head of one sequence each.
long long work_tiles(const ProgramSource& source, const AttentionCall& call) {
  return ceil_div(source.query_rows(), std::max(source.prefill_rows, 1)) *
         (static_cast<long long>(call.sequences) * call.kv_heads);
}

}  // namespace

Result<bool> takes_prefill(const ProgramSource& source, const DeviceInfo& device, const AttentionCall& call) {
  const bool has_prefill = source.kernels.count(Role::prefill) != 0;
  if (call.many_rows == ManyRows::prefill && !has_prefill)
    return fail(Code::unsupported, fmt::format("program {} has no prefill kernel", source.id), {},
                {"`kvjit explain` says why"});
  if (!has_prefill || call.many_rows != ManyRows::chosen) return has_prefill && call.many_rows == ManyRows::prefill;
  // A block of prefill has a multiprocessor to itself and is about twice as fast as one of decode over many rows. It is
  // chosen for speed alone, so not on the CPU back-end.
  return device.is_gpu && work_tiles(source, call) * 2 >= device.multiprocessors;
}

kv::SchedulerArgs prefill_schedule(const ProgramSource& source, const DeviceInfo& device, const AttentionCall& call) {
  kv::SchedulerArgs schedule{};
  schedule.lengths = call.lengths;
  schedule.tokens = call.tokens, schedule.sequences = call.sequences, schedule.kv_heads = call.kv_heads;
  const long long most = call.blocks > 0 ? call.blocks : device.is_gpu ? device.multiprocessors : 2;
  schedule.blocks = static_cast<int>(std::clamp(work_tiles(source, call), 1ll, most));
  return schedule;
}

}  // namespace kvjit
