// The launch of prefill: which calls it takes, and its blocks. Internal to runtime/launch.
// SPDX-License-Identifier: MIT
#pragma once
#include "runtime/device/backend.hpp"
#include "runtime/launch/calls.hpp"

namespace kvjit {

// Whether prefill attends in this call, and not decode: AttentionCall::many_rows. Fails with unsupported if the caller
// asks for prefill and the program has none.
Result<bool> takes_prefill(const ProgramSource& source, const DeviceInfo& device, const AttentionCall& call);

// Whether the call takes prefill in two passes. Fails with unsupported if the caller asks for that and the program has
// no second pass, or numbers of queries are on the device.
Result<bool> takes_two_passes(const ProgramSource& source, const DeviceInfo& device, const AttentionCall& call);

// The chunks of a call in two passes, and their places in its workspace. A group of sequences is converted and attended
// to at once. If the whole context of a sequence fits, there is one chunk, and a group has as many sequences as fit;
// else a group is one sequence.
struct ContextChunks {
  int group = 1,   // sequences
      tokens = 0;  // of a chunk; a multiple of the tokens of a tile
  // Byte offsets, and the bytes of the workspace. The workspace of the second pass is at its start. rotated_q and
  // unrotated_out: f32 rows of all sequences, if a side stays in the rotated domain.
  std::size_t k = 0, v = 0, sums = 0, state = 0, rotated_q = 0, unrotated_out = 0, bytes = 0;
  // A byte for each row of K and of V, if its rows may have powers of two; and whether a row has one (kv::RowPowers).
  std::size_t k_exponents = 0, v_exponents = 0, powers_used = 0;
};
ContextChunks lay_out_context_chunks(const ProgramSource& source, const DeviceInfo& device, const AttentionCall& call);

// KV splits of a work tile, at most: more than one where the work tiles of one sequence leave multiprocessors idle. The
// number depends on the query rows, KV heads and length of a sequence and on the device, never on the batch. So a
// sequence has the same bits in any batch. A call that may have more than 8,191 work tiles is not split: it has no
// counters.
int prefill_splits(const ProgramSource& source, const DeviceInfo& device, const AttentionCall& call);

// Work tiles of a call, at most.
long long work_tile_count(const ProgramSource& source, const AttentionCall& call);

// The arguments by which blocks of prefill find their work tiles (templates/kernels/prefill/work_tiles.cuh): lengths,
// heads, splits, and the number of blocks.
kv::SchedulerArgs prefill_schedule(const ProgramSource& source, const DeviceInfo& device, const AttentionCall& call);

// Lists the splits of sequences by their work tiles in `varlen`.
void list_splits(const ProgramSource& source, const DeviceInfo& device, const AttentionCall& call,
                 kv::VarlenArgs& varlen);

// Partial results that a call by prefill stores: one for each split of each work tile, at most; 0 without splits.
long long prefill_slots(const ProgramSource& source, const DeviceInfo& device, const AttentionCall& call);

}  // namespace kvjit
