// Query chunks. A KV head has GQA group x query length query rows. If a block has registers for fewer of them, the rows
// are split into chunks of Plan::kRows. The tile scheduler (kernels/decode/tile_scheduler.cuh) treats each chunk of
// each KV head as one more head, so each chunk reads the cache once. Row r is query r / group of the head's query
// head r % group.
// SPDX-License-Identifier: MIT
#pragma once
#include "device/simt.cuh"

namespace kv {

// The query chunk that a scheduler head stands for.
template <class Plan>
struct QueryChunk {
  int head,       // the KV head
      first_row;  // the chunk's first query row, among those of the KV head

  KV_DEVICE explicit QueryChunk(int scheduler_head)
      : head(Plan::kQueryChunks == 1 ? scheduler_head : scheduler_head / Plan::kQueryChunks),
        first_row(Plan::kQueryChunks == 1 ? 0 : scheduler_head % Plan::kQueryChunks * Plan::kRows) {}
  // Does the chunk have this row? The last chunk may have fewer.
  KV_DEVICE bool has(int row) const { return Plan::kQueryChunks == 1 || first_row + row < Plan::kAllRows; }
  KV_DEVICE int query(int row) const { return (first_row + row) / Plan::kGroup; }
  KV_DEVICE int query_head(int row) const { return head * Plan::kGroup + (first_row + row) % Plan::kGroup; }
};

}  // namespace kv
