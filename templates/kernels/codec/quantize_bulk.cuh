// quantize, many rows at once: 16 groups of 128 values a warp, rotated by the tensor cores. Serves what long prompts
// are written in (f16 rows, a signed Walsh-Hadamard rotation of 128, a norm over the same 128 values, symmetric
// codebooks of up to 4 bits); kernels/codec/quantize.cuh serves everything.
//
// How a tile is transformed: kernels/codec/bulk_tile.cuh. The signs after it would only mirror codes of a symmetric
// codebook, so they are applied to the packed codes.
//
// SPDX-License-Identifier: MIT
#pragma once
#include "args/attention.cuh"
#include "kernels/codec/bulk_encode.cuh"
#include "device/simt.cuh"
#include "kernels/codec/bulk_tile.cuh"
#include "formats/stored_row.cuh"

namespace kv {

// A group of each of the tile's rows to the stage at `to`, half a row a lane and step.
KV_DEVICE void stage_tile_rows(SharedAddress to, const CodecArgs& args, const Tile& tile, int group) {
  const u8* const x = static_cast<const u8*>(args.x.data) + group * (kTileGroup * 2) + lane() % 16 * 16;
  if (tile.is_together) {
    const u8* from = x + (row_in_x(args, tile.start) + (lane() / 16) * args.x.query_stride) * 2;
    KV_UNROLL
    for (int i = 0; i < kTileRows / 2; ++i) {
      copy_async<16>(staged_chunk(to, 2 * i + lane() / 16, lane() % 16), from, 16);
      from += args.x.query_stride * 4;
    }
  } else {
    KV_NO_UNROLL
    for (int row = lane() / 16; row < kTileRows; row += 2)
      copy_async<16>(staged_chunk(to, row, lane() % 16), x + row_in_x(args, tile.row(args, row)) * 2, 16);
  }
}

template <class Plan>
KV_DEVICE void quantize_bulk(const CodecArgs& args) {
  constexpr int kGroups = Plan::kHeadDim / kTileGroup;
  fill_encoding_tables<Plan>();
  store_hadamard(Plan::kMatrixAt, Plan::pre_signs(lane() & 3));
  sync_block();

  const int g = lane() >> 2, c = lane() & 3;
  u32 mirror[4] = {};
  fill_mirror<Plan>(mirror);

  // The next tile is on its way while this one is encoded.
  const SharedAddress ring = Plan::kStageAt + warp() * (2 * kTileStage);
  TileTurns<Plan> turns = TileTurns<Plan>::of(args);
  int group = 0, fill = 0, take = 0;
  const auto stage_next = [&] {
    if (turns.has_tile()) stage_tile_rows(ring + fill * kTileStage, args, turns.tile, group);
    copy_commit();
    fill ^= 1;
  };
  stage_next();
  KV_NO_UNROLL
  while (turns.has_tile()) {
    const Tile now = turns.tile;
    const int now_group = group;
    if (++group == kGroups) group = 0, turns.advance(args);
    stage_next();
    copy_wait<1>();
    sync_warp();  // every lane's copies of this tile have landed
    u32 x[2][16];
    KV_UNROLL
    for (int i = 0; i < 8; ++i)
      load_shared_u128(&x[i / 4][i % 4 * 4], staged_chunk(ring + take * kTileStage, g + i / 4 * 8, c * 4 + i % 4));
    sync_warp();  // every lane has read the stage that is filled next
    take ^= 1;
    float y[8][2][4];
    hadamard_products(y, x, Plan::kMatrixAt);
    butterflies(y);
    float squares[2];  // 128 times those of the rows
    squared_lengths(squares, y);
    const float square[2] = {squares[0] * (1.f / kTileGroup), squares[1] * (1.f / kTileGroup)};
    EncodedRow rows[2];
    encode_tile<Plan>(rows, y, square, {1.f, 1.f}, mirror);
    store_rows<Plan>(args, now, now_group, rows);
  }
}

}  // namespace kv
