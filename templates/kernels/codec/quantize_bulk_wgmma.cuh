// quantize_bulk_wgmma: quantizes four bulk tiles a warpgroup on sm_90a, one tile a warp (kernels/codec/bulk_tile.cuh).
// wgmma multiplies their 64 groups with the 128 x 128 matrix of the rotation (kernels/codec/wgmma_rotation.cuh). It
// serves rows of f16, bf16 and f32 behind a signed Walsh-Hadamard or a dense rotation of 128, with a norm over the same
// 128 values and a symmetric codebook of up to 4 bits. kernels/codec/quantize.cuh serves everything.
//
// Rows enter wgmma from registers, or directly from shared memory (Plan::Input, kernels/codec/wgmma_rows.cuh).
// SPDX-License-Identifier: MIT
#pragma once
#include "args/attention.cuh"
#include "kernels/codec/bulk_encode.cuh"
#include "kernels/codec/wgmma_rows.cuh"
#include "kernels/codec/wgmma_rotation.cuh"
#include "device/simt.cuh"
#include "kernels/codec/bulk_tile.cuh"

namespace kv {

template <class Plan>
KV_DEVICE void quantize_bulk_wgmma(const CodecArgs& args) {
  using Input = typename Plan::Input;
  constexpr int kGroups = Plan::kHeadDim / kBulkGroup, kStageBytes = kBulkRows * kBulkGroup * Input::kBytes;
  fill_encoding_tables<Plan>();
  // Column n of the products: lane c holds the values 32 c .. 32 c + 31 of its rows, two for each step of eight
  // columns.
  fill_matrix<Plan>([](int n, int k) { return Plan::matrix(n % 8 / 2 * 32 + n / 8 * 2 + n % 2, Input::source(k)); },
                    Input::pair);
  sync_block();
  open_warpgroup_order<Plan::kWarps / 4>();

  // The stage of the warp. Where rows are an operand in shared memory, the stage is the warpgroup's, and there are two:
  // rows are read until the products are done.
  const SharedAddress stage =
      Plan::kStageAt + (Input::kIsOperand ? shfl(u32(warp() / 4), 0) * (8 * kStageBytes) : warp() * kStageBytes);
  BulkTileLoop<Plan> loop = BulkTileLoop<Plan>::of(args);
  int group = 0;
  SharedAddress take = 0;
  const auto stage_next = [&] {
    if (loop.block_has_tile()) stage_input<Input>(stage + take, args, loop.tile, group);
    copy_commit();
  };
  stage_next();
  KV_NO_UNROLL
  while (loop.block_has_tile()) {
    copy_wait<0>();
    const Tile now = loop.tile;
    const int now_group = group;
    if (++group == kGroups) group = 0, loop.advance(args);
    float square[2], unit[2] = {1.f, 1.f}, y[64];
    // The next tile is on its way while this one is encoded.
    if constexpr (Input::kIsOperand) {
      publish_operands();
      const SharedAddress now_stage = stage + take;
      take ^= 4 * kStageBytes;
      matrix_products<Plan, 1>(
          y, [&](int, int) { return Input::rows(now_stage); }, [] {},
          stage_next);  // No warp reads that stage any more: all have passed await_warpgroup_order() since its products
                        // ended.
    } else {
      sync_warp();  // every lane's copies of this tile have landed
      u32 a[8][Input::kTerms][4];
      Input::load(a, square, unit, stage);
      sync_warp();  // every lane has read the stage
      stage_next();
      matrix_products<Plan>(y, a, [] {});
    }
    if constexpr (!Input::kKnowsLengths) {
      squared_lengths(square, y);
      KV_UNROLL
      for (int half = 0; half < 2; ++half) square[half] *= Plan::kSquareUnit;
    }
    EncodedRow rows[2];
    KV_UNROLL
    for (int half = 0; half < 2; ++half) {
      encode_row<Plan>(rows[half], square[half], Plan::kDeviations * unit[half], [&](int e, float(&v)[8]) {
        KV_UNROLL
        for (int m = 0; m < 8; ++m) v[m] = y[16 * e + m / 2 * 4 + 2 * half + m % 2];
      });
      rows[half].length = squared_length<Plan>(rows[half].nibbles, lane() * 4);
    }
    store_rows<Plan>(args, now, now_group, rows);
  }
}

}  // namespace kv
