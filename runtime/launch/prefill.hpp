// The launch of prefill: which calls it takes, and its blocks. Internal to runtime/launch.
// SPDX-License-Identifier: MIT
#pragma once
#include "runtime/device/backend.hpp"
#include "runtime/launch/calls.hpp"

namespace kvjit {

// Whether prefill attends in this call, and not decode: AttentionCall::many_rows. Fails with unsupported if the caller
// asks for prefill and the program has none.
Result<bool> takes_prefill(const ProgramSource& source, const DeviceInfo& device, const AttentionCall& call);

// The arguments by which blocks of prefill find their work tiles (templates/kernels/prefill/work_tiles.cuh): lengths,
// heads, and the number of blocks.
kv::SchedulerArgs prefill_schedule(const ProgramSource& source, const DeviceInfo& device, const AttentionCall& call);

}  // namespace kvjit
