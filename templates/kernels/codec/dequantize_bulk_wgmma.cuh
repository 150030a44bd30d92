// dequantize_bulk_wgmma: dequantizes four bulk tiles a warpgroup on sm_90a, one tile a warp
// (kernels/codec/bulk_tile.cuh). wgmma multiplies their 64 groups with the matrix of the rotation back
// (kernels/codec/wgmma_rotation.cuh). It serves the rows that kernels/codec/quantize_bulk_wgmma.cuh writes behind a
// dense rotation, and gives them in the original domain. kernels/codec/dequantize_bulk.cuh serves Walsh-Hadamard
// transforms, and kernels/codec/dequantize.cuh everything.
// SPDX-License-Identifier: MIT
#pragma once
#include "args/attention.cuh"
#include "kernels/codec/bulk_decode.cuh"
#include "kernels/codec/wgmma_rotation.cuh"
#include "device/simt.cuh"
#include "kernels/codec/bulk_tile.cuh"

namespace kv {

template <class Plan>
KV_DEVICE void dequantize_bulk_wgmma(const CodecArgs& args) {
  using Output = typename Plan::Output;
  constexpr int kGroups = Plan::kHeadDim / kBulkGroup;
  // The next tile is computed, and its codes are loaded, ahead of everything else. With two fp16 terms a code there are
  // no registers for that. The products then take so long that they hide the computation of the next tile.
  constexpr bool kLoadsFirst = Plan::kCodeTerms == 1;
  constexpr int kChunk = 16 / Output::kBytes,  // values that a lane stores at once
      kChunks = 32 / kChunk;                   // stores of a lane for one row
  fill_decoding_table<Plan>();
  // The columns of the matrix are ordered so that the four lanes of a row store 16 bytes each next to each other, and
  // whole sectors are written. Eight columns n of the products (step t = n / 8) give lane c two values of its chunk
  // t / (kChunk / 2). The contracted values k follow the codes: lane c holds those of values 32 c .. 32 c + 31 of its
  // rows, and gives four of them a step.
  const auto entry = [](int n, int k) {
    constexpr int kSteps = kChunk / 2;
    const int t = n / 8, value = t / kSteps * (4 * kChunk) + n % 8 / 2 * kChunk + t % kSteps * 2 + n % 2;
    return Plan::matrix(k % 8 / 2 * 32 + k / 16 * 4 + k / 8 % 2 * 2 + k % 2, value);
  };
  fill_matrix<Plan>(entry, pack_f16x2);
  sync_block();
  open_warpgroup_order<Plan::kWarps / 4>();

  const int g = lane() >> 2, c = lane() & 3;
  const u32 mine = lane() * kPairBytes<Plan>;
  BulkTileLoop<Plan> loop = BulkTileLoop<Plan>::of(args);
  int group = 0;
  StoredBulkTile<Plan> stored;
  if (loop.block_has_tile()) stored.load(args, loop.tile, 0);
  KV_NO_UNROLL
  while (loop.block_has_tile()) {
    const Tile now = loop.tile;
    const int now_group = group;
    const auto find_next = [&] {
      if (++group == kGroups) group = 0, loop.advance(args);
    };
    StoredBulkTile<Plan> next = stored;
    const auto load_next = [&] {
      if (loop.block_has_tile()) next.load(args, loop.tile, group);
    };
    if constexpr (kLoadsFirst) find_next(), load_next();
    u32 a[8][Plan::kCodeTerms][4];
    KV_UNROLL
    for (int i = 0; i < 32; ++i) {  // half2 number i / 2 of row g (i even) or of row g + 8 (i odd)
      u32 halves[Plan::kCodeTerms];
      load_pair<Plan>(halves, stored.words[i % 2], i / 2, mine);
      KV_UNROLL
      for (int term = 0; term < Plan::kCodeTerms; ++term) a[i / 4][term][i % 4] = halves[term];
    }
    float factor[2] = {f32_from_f16(stored.scale[0]) * Plan::kFactor, f32_from_f16(stored.scale[1]) * Plan::kFactor};
    float y[64];
    i64 row_at[2];
    matrix_products<Plan>(y, a, [&] {
      rows_in_x(row_at, args, now);
      if constexpr (!kLoadsFirst) find_next();
    });
    if constexpr (!kLoadsFirst) load_next();
    if constexpr (Plan::kRenormalises) renormalise(factor, y);
    KV_UNROLL
    for (int half = 0; half < 2; ++half) {
      if (g + 8 * half >= int(now.valid)) continue;
      u8* const to =
          static_cast<u8*>(args.x.data) + (row_at[half] + now_group * kBulkGroup + c * kChunk) * Output::kBytes;
      KV_UNROLL
      for (int chunk = 0; chunk < kChunks; ++chunk) {
        const auto value = [&](int i) { return y[(chunk * kChunk + i) / 2 * 4 + 2 * half + i % 2] * factor[half]; };
        u8* const at = to + chunk * 64;
        if constexpr (Output::kBytes == 4)
          store_u128(at, bits_of(value(0)), bits_of(value(1)), bits_of(value(2)), bits_of(value(3)));
        else
          store_u128(at, Output::pair(value(0), value(1)), Output::pair(value(2), value(3)),
                     Output::pair(value(4), value(5)), Output::pair(value(6), value(7)));
      }
    }
    stored = next;
  }
}

}  // namespace kv
