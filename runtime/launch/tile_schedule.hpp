// The host's half of the decode tile scheduler: how many blocks a call gets, how many tiles each block takes, into how
// many splits that cuts a batch-head, and whether the splits are merged by a launch of their own. The device's half,
// templates/kernels/decode/tile_scheduler.cuh, follows the same rule when lengths are on the device, where the host
// cannot read them.
//
// The rule: all tiles of a call are shared evenly among the blocks, unless a cut at batch-head boundaries costs less
// than the split boundaries that it avoids. SchedulerTiming holds the measured times that decide between the two.
// SPDX-License-Identifier: MIT
#pragma once
#include "args/attention.cuh"
#include "generator/source.hpp"
#include "runtime/device/backend.hpp"
#include "runtime/launch/calls.hpp"

namespace kvjit {

// Measured times by which the scheduler compares schedules. All were measured on one H200; other GPUs use the same
// numbers. "kv4" in a source is a 4-bit format with 8 query rows a KV head. The CPU back-end uses none of the first
// three.
struct SchedulerTiming {
  // Bytes of K and V that one multiprocessor reads in a microsecond. It converts times to tiles.
  double read_bytes_per_us = 33e3;
  // Microseconds of a split boundary inside a block: a second prologue and a second epilogue. Measured with kv4: 8 KV
  // heads x 4096 tokens take 7.4 us and x 4100 tokens 12.5 us with boundaries; 24 KV heads x 16400 tokens take 24.9 us
  // with boundaries and 20.3 us without.
  double seam_us = 7;
  // Microseconds of one more merge round: the last block of a batch-head adds up at most kv::kSplitsAtOnce splits a
  // round. Measured with kv4: 3 KV heads x 4096 tokens take 8.2 us in 43 splits each and 7.1 us in 16.
  double round_us = 1.2;
  // Microseconds that a warp takes for a merge step inside `decode`: 128 outputs of one row over up to
  // kv::kSplitsAtOnce splits. Measured with f16, head_dim_v 512.
  double merge_step_us = 0.65;
  // Microseconds of a launch of `merge`. As long as 2 to 3 steps: f16, 16 and 32 query rows, 8 KV heads x 32768 tokens.
  double merge_launch_us = 1.8;
  // Microseconds that each block of that launch adds. An estimate: about a thousand blocks are resident at once, and a
  // thousand blocks take a microsecond.
  double merge_block_us = 0.001;
};

// Query heads of a call.
long long q_heads(const ProgramSource& source, const AttentionCall& call);
// Heads that the scheduler sees: KV heads x query chunks. All heads of a token count as one if a block takes them
// together (layout with token-major heads).
long long scheduler_heads(const ProgramSource& source, const AttentionCall& call);
// Tokens of one sequence that its queries may see: all of them, or those inside the program's window.
long long seen_tokens(const ProgramSource& source, const AttentionCall& call);
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
