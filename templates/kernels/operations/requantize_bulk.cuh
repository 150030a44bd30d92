// requantize_bulk: requantizes bulk tiles of 16 rows (kernels/operations/tile_values.cuh) between formats that rotate
// alike. Values are decoded and encoded in the rotated domain, so no transform is needed.
// kernels/operations/requantize.cuh serves everything.
// SPDX-License-Identifier: MIT
#pragma once
#include "kernels/operations/cache_tokens.cuh"
#include "device/simt.cuh"
#include "kernels/operations/tile_values.cuh"

namespace kv {

template <class Plan>
KV_DEVICE void requantize_bulk(const BulkCopyArgs& args) {
  using From = typename Plan::From;
  using To = typename Plan::To;
  fill_decoding_table<From>();
  fill_encoding_tables<To>();
  sync_block();

  BulkTileLoop<Plan> loop = BulkTileLoop<Plan>::of(args);
  KV_NO_UNROLL
  for (; loop.has_tile(); loop.advance(args)) {
    StoredRow source[2], target[2];
    bool is_left_out[2];
    KV_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int i = (lane() >> 2) + 8 * half;
      const OperationRow at = operation_row(args, loop.tile.row(args, i));
      const i64 from = slot_of(args.from, at), to = slot_of(args.to, at);
      is_left_out[half] = from < 0 || to < 0 || i >= int(loop.tile.valid);
      source[half] = stored_row<typename From::F>(args.from.side, at.sequence, at.head, from < 0 ? 0 : from);
      target[half] = stored_row<typename To::F>(args.to.side, at.sequence, at.head, to < 0 ? 0 : to);
    }
    KV_NO_UNROLL
    for (int group = 0; group < Plan::kHeadDim / kBulkGroup; ++group) {
      StoredBulkTile<From> stored;
      stored.load_row(0, group, source[0]);
      stored.load_row(1, group, source[1]);
      float y[8][2][4];
      EncodedRow rows[2];
      read_rotated_tile<From>(y, stored);
      write_rotated_tile<To>(rows, y);
      KV_UNROLL
      for (int half = 0; half < 2; ++half)
        if (!is_left_out[half]) store_row<To>(target[half], group, rows[half]);
    }
  }
}

}  // namespace kv
