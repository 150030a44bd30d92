// Append: stores the new tokens of a call in the cache and attends to them in the same launch. A call brings K and V of
// its query_length new tokens as f16, bf16 or f32. A block that stages a tile of the cache first stores the new rows
// that lie in it, as quantize would. Lengths count these tokens: token i of the call is token length - query_length + i
// of the cache. Tokens before token 0 of the cache are left out.
// SPDX-License-Identifier: MIT
#pragma once
#include "args/attention.cuh"
#include "device/simt.cuh"
#include "kernels/decode/query_chunks.cuh"
#include "kernels/decode/tile_scheduler.cuh"
#include "formats/write_row.cuh"

namespace kv {

template <class Writer>
KV_DEVICE void append_row(const NewRows& rows, const CacheSide& side, int sequence, int head, int token, int index,
                          u8* bytes) {
  const i64 from = sequence * rows.x.sequence_stride + index * rows.x.query_stride + head * rows.x.head_stride;
  write_row<Writer>(rows.x.data, rows.type, from, rows.tensor_scale, bytes,
                    stored_row<typename Writer::Encoder::F>(side, sequence, head, token));
}

template <class Plan>
KV_DEVICE void append(const AppendArgs& args, const KvSplit& split) {
  constexpr int kNew = Plan::kAllRows / Plan::kGroup;
  static_assert(Plan::kRingAt + Plan::kWarps * Plan::kAppendBytes <= Plan::kSharedBytes,
                "rows are packed where the ring will be");
  // A team stages the tiles of its last round whole (decode.cuh), so the rows behind the split must be there, too. The
  // block that has them stores the same bytes.
  const int staged_end = split.last + (Plan::kTeam - 1 - (split.last - split.first - 1) % Plan::kTeam);
  const int first = split.length - kNew, tiles_begin = split.first * Plan::kTile, tiles_end = staged_end * Plan::kTile;
  const int begin = first > tiles_begin ? first : tiles_begin;
  const int end = split.length < tiles_end ? split.length : tiles_end;
  if (begin >= end) return;                            // the whole block returns
  const int head = QueryChunk<Plan>(split.head).head;  // blocks of the head's other query chunks store the same bytes
  u8* const bytes = shared_bytes() + Plan::kRingAt + warp() * Plan::kAppendBytes;
  KV_NO_UNROLL
  for (int i = warp(); i < 2 * (end - begin); i += Plan::kWarps) {
    const int token = begin + i / 2;
    if (i % 2 == 0)
      append_row<typename Plan::KeyWriter>(args.new_k, args.k, split.sequence, head, token, token - first, bytes);
    else
      append_row<typename Plan::ValueWriter>(args.new_v, args.v, split.sequence, head, token, token - first, bytes);
    sync_warp();  // every lane is done with the bytes
  }
  publish_stores();
  sync_block();  // the rows are in the cache before any warp asks for their tile
}

}  // namespace kv
