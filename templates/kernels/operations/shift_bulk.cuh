// shift_bulk: moves the keys of bulk tiles of 16 rows to other positions, in place. A tile is decoded and encoded by
// kernels/operations/tile_values.cuh, and kernels/operations/rope_tile.cuh applies RoPE between.
// kernels/operations/shift.cuh serves everything.
// SPDX-License-Identifier: MIT
#pragma once
#include "kernels/operations/cache_tokens.cuh"
#include "device/simt.cuh"
#include "kernels/operations/tile_values.cuh"
#include "kernels/operations/rope_tile.cuh"

namespace kv {

template <class Plan>
KV_DEVICE void shift_bulk(const BulkShiftArgs& args) {
  using From = typename Plan::From;
  using To = typename Plan::To;
  fill_decoding_table<From>();
  fill_encoding_tables<To>();
  store_hadamard(From::kMatrixAt, From::post_signs(lane() & 3));
  store_hadamard(To::kMatrixAt, To::pre_signs(lane() & 3));
  fill_steps<Plan::kThreads>(args.rope, Plan::kStepsAt);
  sync_block();

  u32 mirror[4] = {};
  fill_mirror<To>(mirror);
  BulkTileLoop<Plan> loop = BulkTileLoop<Plan>::of(args);
  KV_NO_UNROLL
  for (; loop.has_tile(); loop.advance(args)) {
    StoredRow row[2];
    int by[2];  // positions that the row moves by; 0: the row keeps its bytes
    KV_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int i = (lane() >> 2) + 8 * half;
      const OperationRow at = operation_row(args, loop.tile.row(args, i));
      const i64 slot = slot_of(args.at, at);
      by[half] = args.rope.positions ? args.rope.positions[at.index] : args.rope.position;
      if (slot < 0 || i >= int(loop.tile.valid)) by[half] = 0;
      row[half] = stored_row<typename To::F>(args.at.side, at.sequence, at.head, slot < 0 ? 0 : slot);
    }
    if (!any(by[0] != 0 || by[1] != 0)) continue;
    KV_NO_UNROLL
    for (int group = 0; group < Plan::kHeadDim / kBulkGroup; ++group) {
      StoredBulkTile<From> stored;
      stored.load_row(0, group, row[0]);
      stored.load_row(1, group, row[1]);
      float y[8][2][4];
      read_tile<From>(y, stored);
      rope_tile(y, args.rope, group, by, Plan::kStepsAt);
      EncodedRow rows[2];
      write_tile<To>(rows, y, mirror);
      KV_UNROLL
      for (int half = 0; half < 2; ++half)
        if (by[half] != 0) store_row<To>(row[half], group, rows[half]);
    }
  }
}

}  // namespace kv
