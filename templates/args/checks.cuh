// Arguments of checked calls (target.checks). The check kernel reads lengths, page tables and slots before other
// kernels use them. It stores the first value out of range in the caller's record. Checked kernels do nothing while the
// record counts a value, so calls with that record do nothing until the caller clears it.
// SPDX-License-Identifier: MIT
#pragma once
#include "args/seen_tokens.cuh"
#include "args/slots.cuh"

namespace kv {

enum class CheckedArray : int { none, lengths, k_pages, v_pages, pages, slots, query_starts };

// The caller's record, in device memory; zero before the first call that uses it.
struct CheckRecord {
  u32 count;           // values out of range
  CheckedArray array;  // the array of the value that was found first
  i64 index,           // its index in that array
      value,           // the value
      least, most;     // the range of values that are possible there
  i64 reserved[3];
};

struct CheckedTable {
  PageTable table;     // table.pages null: there is no table to check
  i64 pool_pages;      // pages of the pool; entries must be below
  CheckedArray array;  // what to call the table in the record
};
// Arguments of check. Grid: (sequences).
struct CheckArgs {
  CheckRecord* record;
  const int* lengths;  // tokens of each sequence, each to be within 0 .. tokens; null: `tokens` for every sequence
  i64 first_token;     // the cache's token of token 0
  SeenArgs seen;       // tokens of the call: entries of pages without a token that is seen are no page numbers
  int tokens,          // tokens of a sequence that the call uses, at most
      sequences,       // sequences of the call
      page_tokens;     // tokens of a page
  CheckedTable tables[2];
  const void* slots;  // slots of slot_type; null: there are none to check
  i64 slots_given,    // entries of `slots`
      slot_count;     // slots that exist; negative slots are always allowed
  SlotType slot_type;
  const int* query_starts;  // of a ragged batch, as in VarlenArgs, with up to seen.queries; null: none to check
  i64 query_rows;           // rows of q and out
};

// Arguments of a kernel in a checked program: it runs only while the record counts nothing.
template <class Args>
struct Checked : Args {
  CheckRecord* record;
};

}  // namespace kv
