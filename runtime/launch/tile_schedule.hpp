// The host's half of the decode tile scheduler: how many blocks a call gets, how many tiles each block takes, into how
// many splits that cuts a batch-head, and whether the splits are merged by a launch of their own. The device's half,
// templates/kernels/decode/tile_scheduler.cuh, follows the same rule when lengths are on the device, where the host
// cannot read them.
//
// The rule: all tiles of a call are shared evenly among the blocks, unless a cut at batch-head boundaries costs less
// than the split boundaries that it avoids. The measured times that decide between the two are the arch's
// (ProgramSource::timing).
// SPDX-License-Identifier: MIT
#pragma once
#include "args/attention.cuh"
#include "args/seen_tokens.cuh"
#include "generator/source.hpp"
#include "runtime/device/backend.hpp"
#include "runtime/launch/calls.hpp"

namespace kvjit {

// Queries of a sequence in a call, at most.
int queries_of(const ProgramSource& source, const AttentionCall& call);
// Rows of q and out of a call for each query head. A ragged batch is one sequence of them.
long long query_rows(const ProgramSource& source, const AttentionCall& call);
// Query heads of a call.
long long q_heads(const ProgramSource& source, const AttentionCall& call);
// Heads that the scheduler sees: KV heads x query chunks. All heads of a token count as one if a block takes them
// together (layout with token-major heads).
long long scheduler_heads(const ProgramSource& source, const AttentionCall& call);
// Tokens of one sequence that its queries may see: all of them, or those inside the program's window.
long long seen_tokens(const ProgramSource& source, const AttentionCall& call);
// The numbers by which kernels for every program find the tokens that the queries of a call see.
kv::SeenArgs seen_args(const ProgramSource& source, const AttentionCall& call);
// Tiles of all batch-heads of a call if every sequence has `call.tokens`. At least 1 for each batch-head, also for a
// call that has not been checked yet.
long long tiles(const ProgramSource& source, const AttentionCall& call);

// Blocks that `decode` may be launched with, at most: 1 to kMostBlocks, and no more than there are tiles. A workspace
// is laid out for this number.
int most_blocks(const ProgramSource& source, const DeviceInfo& device, const AttentionCall& call);
// The schedule as the kernels receive it. If lengths are on the device, tiles per block are left 0 and the kernel
// computes them.
kv::SchedulerArgs make_schedule(const ProgramSource& source, const DeviceInfo& device, const AttentionCall& call);
// Whether `decode` leaves its splits to a launch of `merge`. Otherwise the last block of each batch-head merges them.
// True for every program whose `decode` has no fused merge.
bool needs_merge_kernel(const ProgramSource& source, const DeviceInfo& device, const AttentionCall& call);

}  // namespace kvjit
