// quantize_rope_bulk: applies RoPE to bulk tiles of 16 rows (kernels/operations/rope_tile.cuh) and quantizes them into
// the cache (kernels/operations/tile_values.cuh). kernels/operations/quantize_rope.cuh serves everything.
// SPDX-License-Identifier: MIT
#pragma once
#include "kernels/operations/cache_tokens.cuh"
#include "kernels/codec/lane_rows.cuh"
#include "device/simt.cuh"
#include "kernels/operations/tile_values.cuh"
#include "kernels/operations/rope_tile.cuh"

namespace kv {

// Loads one group of the lane's rows g and g + 8. at: the elements of x where the groups begin.
template <class Words>
KV_DEVICE void load_tile(float (&y)[8][2][4], const void* data, const i64 (&at)[2]) {
  KV_UNROLL
  for (int half = 0; half < 2; ++half) {
    float x[32];
    load_lane<Words>(data, at[half] + (lane() & 3) * 32, x);
    KV_UNROLL
    for (int e = 0; e < 32; ++e) y[e / 4][e / 2 % 2][2 * half + e % 2] = x[e];
  }
}

template <class Plan>
KV_DEVICE void quantize_rope_bulk(const RopedCodecArgs& args) {
  using To = typename Plan::To;
  fill_encoding_tables<To>();
  store_hadamard(To::kMatrixAt, To::pre_signs(lane() & 3));
  fill_steps<Plan::kThreads>(args.rope, Plan::kStepsAt);
  sync_block();

  u32 mirror[4] = {};
  fill_mirror<To>(mirror);
  BulkTileLoop<Plan> loop = BulkTileLoop<Plan>::of(args);
  KV_NO_UNROLL
  for (; loop.has_tile(); loop.advance(args)) {
    i64 in_x[2];
    int position[2];
    KV_UNROLL
    for (int half = 0; half < 2; ++half) {
      const BulkRow at = loop.tile.row(args, (lane() >> 2) + 8 * half);
      in_x[half] = row_in_x(args, at);
      position[half] = args.rope.positions ? args.rope.positions[operation_row(args, at).index] : args.rope.position;
    }
    KV_NO_UNROLL
    for (int group = 0; group < Plan::kHeadDim / kBulkGroup; ++group) {
      float y[8][2][4];
      switch (args.x_type) {
        case RowType::f16:
          load_tile<F16Words>(y, args.x.data, in_x);
          break;
        case RowType::bf16:
          load_tile<Bf16Words>(y, args.x.data, in_x);
          break;
        case RowType::f32:
          load_tile<F32Words>(y, args.x.data, in_x);
          break;
      }
      rope_tile(y, args.rope, group, position, Plan::kStepsAt);
      EncodedRow rows[2];
      write_tile<To>(rows, y, mirror);
      KV_UNROLL
      for (int half = 0; half < 2; ++half) {  // Slots are looked up only now, because registers are scarce before.
        in_x[half] += kBulkGroup;
        const int i = (lane() >> 2) + 8 * half;
        const OperationRow at = operation_row(args, loop.tile.row(args, i));
        const i64 slot = slot_of(args, at);
        if (slot < 0 || i >= int(loop.tile.valid)) continue;
        store_row<To>(stored_row<typename To::F>(args.side, at.sequence, at.head, slot), group, rows[half]);
      }
    }
  }
}

}  // namespace kv
