// check: tests whether all lengths, page numbers, slots and query starts of a call are in range. It runs ahead of the
// kernels of a checked call and writes the first value that is out of range to the caller's record (args/checks.cuh). A
// block takes one sequence; slots are divided among all threads of the grid. Entries of a page table are tested if a
// query of the call sees a token of their page, because the others are never read.
// SPDX-License-Identifier: MIT
#pragma once
#include "kernels/auxiliary/check_value.cuh"

namespace kv {

template <class Plan>
KV_DEVICE void check(const CheckArgs& args) {
  const int sequence = block_x();
  const int stored_length = args.lengths ? args.lengths[sequence] : args.tokens;
  if (thread() == 0) check_value(args.record, CheckedArray::lengths, sequence, stored_length, 0, args.tokens);
  const int length = clamped_token(stored_length, args.tokens);
  const i64 queries =
      args.query_starts ? i64(args.query_starts[sequence + 1]) - args.query_starts[sequence] : args.seen.queries;
  TokenRange seen{0, 0};
  if (!args.query_starts || queries > 0) seen = seen_tokens(args.seen, sequence, length, queries);
  const i64 first = args.first_token + seen.first, end = args.first_token + seen.end;
  for (int side = 0; side < 2; ++side) {
    const CheckedTable& checked = args.tables[side];
    if (!checked.table.pages) continue;
    for (i64 page = first / args.page_tokens + thread(); first < end && page * args.page_tokens < end;
         page += Plan::kThreads) {
      const i64 index = sequence * checked.table.row_stride + page;
      check_value(args.record, checked.array, index, checked.table.pages[index], 0, checked.pool_pages - 1);
    }
  }
  if (args.query_starts && thread() == 0) {
    const i64 start = args.query_starts[sequence], most = start + args.seen.queries;
    if (sequence == 0) check_value(args.record, CheckedArray::query_starts, 0, start, 0, args.query_rows);
    check_value(args.record, CheckedArray::query_starts, sequence + 1, args.query_starts[sequence + 1], start,
                most < args.query_rows ? most : args.query_rows);
  }
  if (!args.slots) return;
  for (i64 i = i64(sequence) * Plan::kThreads + thread(); i < args.slots_given;
       i += i64(args.sequences) * Plan::kThreads) {
    const i64 slot = args.slot_type == SlotType::i32 ? i64(static_cast<const int*>(args.slots)[i])
                                                     : static_cast<const i64*>(args.slots)[i];
    if (slot >= 0) check_value(args.record, CheckedArray::slots, i, slot, 0, args.slot_count - 1);
  }
}

}  // namespace kv
