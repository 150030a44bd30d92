// dequantize, many rows at once, by warpgroups (sm_90a): 64 groups of 128 values, 16 a warp, rotated back by their
// matrix (kernels/codec/wgmma_rotation.cuh). Serves what kernels/codec/quantize_bulk_wgmma.cuh writes behind a dense
// rotation, in the original domain; Walsh-Hadamard transforms go back by kernels/codec/dequantize_bulk.cuh, and
// kernels/codec/dequantize.cuh serves everything.
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
  constexpr int kGroups = Plan::kHeadDim / kTileGroup;
  // The next tile's codes are asked for ahead of everything else. With two halves of each code products take so long
  // that they hide how it is found instead, and there are no registers for both.
  constexpr bool kLoadsFirst = Plan::kCodeParts == 1;
  constexpr int kChunk = 16 / Output::kBytes,
                kChunks = 32 / kChunk;  // values that a lane stores at once; stores of a row
  fill_decoding_table<Plan>();
  // Rows leave in 16 bytes a lane and step, the four lanes of a row next to each other, so that whole sectors are
  // written. Column n: step t = n / 8 of the products gives two values of chunk t / (kChunk / 2), of lane c. Contracted
  // value k: lane c holds the codes of values 32 c .. 32 c + 31 of its rows, and gives four a step.
  const auto entry = [](int n, int k) {
    constexpr int kSteps = kChunk / 2;
    const int t = n / 8, value = t / kSteps * (4 * kChunk) + n % 8 / 2 * kChunk + t % kSteps * 2 + n % 2;
    return Plan::matrix(k % 8 / 2 * 32 + k / 16 * 4 + k / 8 % 2 * 2 + k % 2, value);
  };
  fill_matrix<Plan>(entry, pack_f16x2);
  sync_block();
  open_turns<Plan::kWarps / 4>();

  const int g = lane() >> 2, c = lane() & 3;
  const u32 mine = lane() * kPairBytes<Plan>;
  TileTurns<Plan> turns = TileTurns<Plan>::of(args);
  int group = 0;
  StoredTile<Plan> stored;
  if (turns.has_turn()) stored.load(args, turns.tile, 0);
  KV_NO_UNROLL
  while (turns.has_turn()) {
    const Tile now = turns.tile;
    const int now_group = group;
    const auto find_next = [&] {
      if (++group == kGroups) group = 0, turns.advance(args);
    };
    StoredTile<Plan> next = stored;
    const auto load_next = [&] {
      if (turns.has_turn()) next.load(args, turns.tile, group);
    };
    if constexpr (kLoadsFirst) find_next(), load_next();
    u32 a[8][Plan::kCodeParts][4];
    KV_UNROLL
    for (int i = 0; i < 32; ++i) {  // row g or g + 8, then the next two values of them
      u32 halves[Plan::kCodeParts];
      load_pair<Plan>(halves, stored.words[i % 2], i / 2, mine);
      KV_UNROLL
      for (int part = 0; part < Plan::kCodeParts; ++part) a[i / 4][part][i % 4] = halves[part];
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
          static_cast<u8*>(args.x.data) + (row_at[half] + now_group * kTileGroup + c * kChunk) * Output::kBytes;
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
