// Checked calls (target.checks): a kernel of its own looks at lengths, page tables and slots before they are used. What
// it finds first goes to the caller's record; a call whose record says something does nothing.
// SPDX-License-Identifier: MIT
#pragma once
#include "args/slots.cuh"

namespace kv {

enum class CheckedArray : int { none, lengths, k_pages, v_pages, pages, slots };

// In device memory, zero before the first call that uses it.
struct CheckRecord {
  u32 count;  // values out of range
  CheckedArray array;
  i64 index, value, least, most;  // of one of them: where it stands, what it is, what it might be
  i64 reserved[3];
};

struct CheckedTable {
  PageTable table;  // null: not used
  i64 pool_pages;
  CheckedArray array;
};
// grid: (sequences).
struct CheckArgs {
  CheckRecord* record;
  const int* lengths;  // at most `tokens`; null: `tokens` for all
  i64 first_token;     // of those that are looked up
  int tokens, sequences, page_tokens;
  CheckedTable tables[2];
  const void* slots;  // null: not used
  i64 slots_given, slot_count;
  SlotType slot_type;
};

// What the checked kernels take.
template <class Args>
struct Checked : Args {
  const CheckRecord* record;
};

}  // namespace kv
