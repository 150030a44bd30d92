// Query rows of a KV head (GQA group x query length) beyond what a block has registers for come in turns of
// Plan::kRows: each turn of each KV head is a pair of its own on the line of work (kernels/decode/tile_scheduler.cuh),
// and reads the cache once.
// SPDX-License-Identifier: MIT
#pragma once
#include "device/simt.cuh"

namespace kv {

// The turn that a pair's head stands for.
template <class Plan>
struct Turn {
  int head, first_row;  // the KV head; of its rows, the first of the turn

  KV_DEVICE explicit Turn(int pair_head)
      : head(Plan::kTurns == 1 ? pair_head : pair_head / Plan::kTurns),
        first_row(Plan::kTurns == 1 ? 0 : pair_head % Plan::kTurns * Plan::kRows) {}
  // Of the last turn, some rows may not be there.
  KV_DEVICE bool has(int row) const { return Plan::kTurns == 1 || first_row + row < Plan::kAllRows; }
  KV_DEVICE int query(int row) const { return (first_row + row) / Plan::kGroup; }
  KV_DEVICE int query_head(int row) const { return head * Plan::kGroup + (first_row + row) % Plan::kGroup; }
};

}  // namespace kv
