// quantize_bulk: quantizes one bulk tile a warp (kernels/codec/bulk_tile.cuh), 16 groups of 128 values that the tensor
// cores rotate. It serves f16 rows behind a signed Walsh-Hadamard rotation of 128, with a norm over the same 128 values
// and a symmetric codebook of up to 4 bits. These are the rows of long prompts. kernels/codec/quantize.cuh serves
// everything.
//
// A warp has two stages in shared memory: the next tile is copied to one while the tile of the other is encoded. The
// signs behind the transform only mirror the codes of a symmetric codebook, so they are applied to the codes.
// SPDX-License-Identifier: MIT
#pragma once
#include "args/attention.cuh"
#include "kernels/codec/bulk_encode.cuh"
#include "device/simt.cuh"
#include "kernels/codec/bulk_tile.cuh"
#include "formats/stored_row.cuh"

namespace kv {

// Copies one group of each of the tile's rows to the stage at `to`. A lane copies 16 bytes a step, and a warp two rows.
KV_DEVICE void stage_tile_rows(SharedAddress to, const CodecArgs& args, const Tile& tile, int group) {
  const u8* const x = static_cast<const u8*>(args.x.data) + group * (kBulkGroup * 2) + lane() % 16 * 16;
  if (tile.is_together) {
    const u8* from = x + (row_in_x(args, tile.start) + (lane() / 16) * args.x.query_stride) * 2;
    KV_UNROLL
    for (int i = 0; i < kBulkRows / 2; ++i) {
      copy_async<16>(staged_chunk(to, 2 * i + lane() / 16, lane() % 16), from, 16);
      from += args.x.query_stride * 4;
    }
  } else {
    KV_NO_UNROLL
    for (int row = lane() / 16; row < kBulkRows; row += 2)
      copy_async<16>(staged_chunk(to, row, lane() % 16), x + row_in_x(args, tile.row(args, row)) * 2, 16);
  }
}

template <class Plan>
KV_DEVICE void quantize_bulk(const CodecArgs& args) {
  constexpr int kGroups = Plan::kHeadDim / kBulkGroup;
  fill_encoding_tables<Plan>();
  store_hadamard(Plan::kMatrixAt, Plan::pre_signs(lane() & 3));
  sync_block();

  const int g = lane() >> 2, c = lane() & 3;
  u32 mirror[4] = {};
  fill_mirror<Plan>(mirror);

  // fill and take are the stages, 0 or 1, that are copied to and read next.
  const SharedAddress ring = Plan::kStageAt + warp() * (2 * kBulkStage);
  BulkTileLoop<Plan> loop = BulkTileLoop<Plan>::of(args);
  int group = 0, fill = 0, take = 0;
  const auto stage_next = [&] {
    if (loop.has_tile()) stage_tile_rows(ring + fill * kBulkStage, args, loop.tile, group);
    copy_commit();
    fill ^= 1;
  };
  stage_next();
  KV_NO_UNROLL
  while (loop.has_tile()) {
    const Tile now = loop.tile;
    const int now_group = group;
    if (++group == kGroups) group = 0, loop.advance(args);
    stage_next();
    copy_wait<1>();
    sync_warp();  // every lane's copies of this tile have landed
    u32 x[2][16];
    KV_UNROLL
    for (int i = 0; i < 8; ++i)
      load_shared_u128(&x[i / 4][i % 4 * 4], staged_chunk(ring + take * kBulkStage, g + i / 4 * 8, c * 4 + i % 4));
    sync_warp();  // every lane has read the stage that is filled next
    take ^= 1;
    float y[8][2][4];
    hadamard_products(y, x, Plan::kMatrixAt);
    butterflies(y);
    float squares[2];  // 128 times the rows' squared lengths, as y is sqrt(128) times as long
    squared_lengths(squares, y);
    const float square[2] = {squares[0] * (1.f / kBulkGroup), squares[1] * (1.f / kBulkGroup)};
    EncodedRow rows[2];
    encode_tile<Plan>(rows, y, square, {1.f, 1.f}, mirror);
    store_rows<Plan>(args, now, now_group, rows);
  }
}

}  // namespace kv
