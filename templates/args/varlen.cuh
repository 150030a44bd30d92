// Arguments of attention whose numbers of queries are known at run time only (attention.query_length = "any" or a
// range). They stand behind the other arguments of decode, merge, prefill and reference. The runtime includes this very
// file.
//
// A plan has kQueries queries, the most that its kernel serves. A sequence of fewer queries has the last of these: its
// own query i is number kQueries - count + i, so its last query is always number kQueries - 1. All rules about
// positions hold for these numbers, and only the places in memory are moved.
// SPDX-License-Identifier: MIT
#pragma once
#include "args/types.cuh"

namespace kv {

struct VarlenArgs {
  // Ragged batches, [sequences + 1], in device memory: sequence s has the rows query_starts[s] .. query_starts[s + 1] -
  // 1 of q and out, whose sequence strides are 0. Null: every sequence has `queries`.
  const int* query_starts;
  int queries;      // of a sequence, at most
  int least, most;  // the kernel attends for sequences of so many queries, and leaves all others alone
  // prefill: KV splits of the work tiles of a sequence that has i + 1 of them in a head, by work_tile_splits() of
  // args/splits.cuh. Sequences of more than split_count of them are not split.
  int split_count;
  u8 splits[320];  // at most 2 a multiprocessor
  u32* tickets;    // prefill: work tiles that blocks have taken beyond their first; zero before and after a call
};

// The arguments of a kernel with run-time query lengths.
template <class Args>
struct Varlen : Args {
  VarlenArgs varlen;
};

}  // namespace kv
