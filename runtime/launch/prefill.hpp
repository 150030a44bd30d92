// The launch of prefill: which calls it takes, and its blocks. Internal to runtime/launch.
// SPDX-License-Identifier: MIT
#pragma once
#include "runtime/device/backend.hpp"
#include "runtime/launch/calls.hpp"

namespace kvjit {

// Whether prefill attends in this call, and not decode: AttentionCall::many_rows. Fails with unsupported if the caller
// asks for prefill and the program has none.
Result<bool> takes_prefill(const ProgramSource& source, const DeviceInfo& device, const AttentionCall& call);

// KV splits of a work tile, at most: more than one where the work tiles of one sequence leave multiprocessors idle. The
// number depends on the query rows, KV heads and length of a sequence and on the device, never on the batch. So a
// sequence has the same bits in any batch. A call that may have more than 8,192 work tiles is not split: it has no
// counters.
int prefill_splits(const ProgramSource& source, const DeviceInfo& device, const AttentionCall& call);

// The arguments by which blocks of prefill find their work tiles (templates/kernels/prefill/work_tiles.cuh): lengths,
// heads, splits, and the number of blocks.
kv::SchedulerArgs prefill_schedule(const ProgramSource& source, const DeviceInfo& device, const AttentionCall& call);

// Lists the splits of sequences by their work tiles in `varlen`.
void list_splits(const ProgramSource& source, const DeviceInfo& device, const AttentionCall& call,
                 kv::VarlenArgs& varlen);

// Partial results that a call by prefill stores: one for each split of each work tile, at most; 0 without splits.
long long prefill_slots(const ProgramSource& source, const DeviceInfo& device, const AttentionCall& call);

}  // namespace kvjit
