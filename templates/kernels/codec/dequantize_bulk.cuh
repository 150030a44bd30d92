// dequantize_bulk: dequantizes one bulk tile a warp (kernels/codec/bulk_tile.cuh), 16 groups of 128 values that the
// tensor cores rotate back. It serves the rows that kernels/codec/quantize_bulk.cuh and quantize_bulk_wgmma.cuh write
// behind a Walsh-Hadamard transform, and gives them in the original domain. kernels/codec/dequantize.cuh serves
// everything.
//
// Results pass through shared memory, so that whole sectors of global memory are written.
// SPDX-License-Identifier: MIT
#pragma once
#include "args/attention.cuh"
#include "kernels/codec/bulk_decode.cuh"
#include "device/simt.cuh"
#include "kernels/codec/bulk_tile.cuh"

namespace kv {

// Writes 16 staged rows of 256 bytes to memory, 16 bytes a lane and step. `bytes` is the size of an element of x. A
// row's segment c goes to group_offset + segment_bytes * c.
KV_DEVICE void unstage_tile_rows(SharedAddress from, const CodecArgs& args, const Tile& tile, i64 bytes,
                                 i64 group_offset, int segment_bytes) {
  const int chunk = lane() % 16;
  u8* const x = static_cast<u8*>(args.x.data) + group_offset + chunk / 4 * segment_bytes + chunk % 4 * 16;
  const auto store = [&](u8* to, int row) {
    u32 v[4];
    load_shared_u128(v, staged_chunk(from, row, chunk));
    store_u128(to, v[0], v[1], v[2], v[3]);
  };
  if (tile.is_together) {
    u8* to = x + (row_in_x(args, tile.start) + (lane() / 16) * args.x.query_stride) * bytes;
    KV_UNROLL
    for (int i = 0; i < kBulkRows / 2; ++i) {
      store(to, 2 * i + lane() / 16);
      to += 2 * args.x.query_stride * bytes;
    }
  } else {
    KV_NO_UNROLL
    for (int row = lane() / 16; row < int(tile.valid); row += 2)
      store(x + row_in_x(args, tile.row(args, row)) * bytes, row);
  }
}

template <class Plan>
KV_DEVICE void dequantize_bulk(const CodecArgs& args) {
  using Output = typename Plan::Output;
  constexpr int kGroups = Plan::kHeadDim / kBulkGroup;
  fill_decoding_table<Plan>();
  store_hadamard(Plan::kMatrixAt, Plan::post_signs(lane() & 3));
  sync_block();

  const int g = lane() >> 2, c = lane() & 3;
  const u32 mine = lane() * kPairBytes<Plan>, signs = Plan::pre_signs(c);
  u32 flips[16];  // the signs of two values, as sign bits of a half2
  KV_UNROLL
  for (int i = 0; i < 16; ++i) flips[i] = (signs >> 2 * i & 1) << 15 | (signs >> (2 * i + 1) & 1) << 31;
  const SharedAddress to = Plan::kStageAt + warp() * kBulkStage;

  BulkTileLoop<Plan> loop = BulkTileLoop<Plan>::of(args);
  int group = 0;
  StoredBulkTile<Plan> stored;
  if (loop.has_tile()) stored.load(args, loop.tile, 0);
  KV_NO_UNROLL
  while (loop.has_tile()) {
    const Tile now = loop.tile;
    const int now_group = group;
    if (++group == kGroups) group = 0, loop.advance(args);
    float y[8][2][4];
    const RowScales scales = row_scales<Plan>(stored.scale);
    decoded_products<Plan>(y, stored.words, scales, mine);
    butterflies(y);
    float factor[2];
    decoding_factors<Plan>(factor, scales, y);
    if (loop.has_tile()) stored.load(args, loop.tile, group);  // under way while the present tile is written
    KV_UNROLL
    for (int pass = 0; pass < 2; ++pass) {  // f32 takes two passes, of 16 values a lane and row each
      if (pass == 1 && Output::kBytes == 2) break;
      KV_UNROLL
      for (int i = 0; i < 8; ++i) {  // the lane's chunks of 16 bytes: four of row g, four of row g + 8
        const int half = i / 4, k = i % 4;
        u32 v[4];
        if constexpr (Output::kBytes == 4) {
          KV_UNROLL
          for (int m = 0; m < 4; ++m) {
            const int e = pass * 16 + k * 4 + m;
            v[m] = bits_of(y[e / 4][e / 2 % 2][2 * half + e % 2] * factor[half]) ^ (signs >> e & 1) << 31;
          }
        } else {
          KV_UNROLL
          for (int m = 0; m < 4; ++m) {
            const int e = k * 8 + m * 2;
            v[m] = Output::pair(y[e / 4][e / 2 % 2][2 * half] * factor[half],
                                y[e / 4][e / 2 % 2][2 * half + 1] * factor[half]) ^
                   flips[e / 2];
          }
        }
        store_shared_u128(staged_chunk(to, g + 8 * half, c * 4 + k), v[0], v[1], v[2], v[3]);
      }
      sync_warp();
      if constexpr (Output::kBytes == 4)
        unstage_tile_rows(to, args, now, 4, now_group * (kBulkGroup * 4) + pass * 64, 128);
      else
        unstage_tile_rows(to, args, now, 2, now_group * (kBulkGroup * 2), 64);
      sync_warp();
    }
  }
}

}  // namespace kv
