// quantise, many rows at once, by warpgroups (sm_90a): 64 groups of 128 values, 16 a warp, rotated by their matrix (core/matrix.cuh). Serves
// rows of any type, behind a signed Walsh-Hadamard or a dense rotation of 128, with a norm over the same 128 values and symmetric
// codebooks of up to 4 bits; kernels/quantise.cuh serves everything.
// SPDX-License-Identifier: MIT
#pragma once
#include "core/args.cuh"
#include "core/encoding.cuh"
#include "core/inputs.cuh"
#include "core/matrix.cuh"
#include "core/simt.cuh"
#include "core/tiles.cuh"

namespace kv {

template <class Plan>
KV_DEVICE void quantise_matrix(const CodecArgs& args) {
  using Input = typename Plan::Input;
  constexpr int kGroups = Plan::kHeadDim / kTileGroup, kStageBytes = kTileRows * kTileGroup * Input::kBytes;
  check_shared();
  fill_encoding_tables<Plan>();
  // Column n of the products: lane c holds the values 32 c .. 32 c + 31 of its rows, two for each step of eight columns.
  fill_matrix<Plan>([](int n, int k) { return Plan::matrix(n % 8 / 2 * 32 + n / 8 * 2 + n % 2, Input::source(k)); });
  sync_block();
  open_turns<Plan::kWarps / 4>();

  const int g = lane() >> 2;
  const u32 mine = lane() * 4;
  const SharedAddress stage = Plan::kStageAt + warp() * kStageBytes;
  TileTurns<Plan> turns = TileTurns<Plan>::of(args);
  int group = 0;
  if (turns.has_turn()) stage_input<Input>(stage, args, turns.tile, 0);
  KV_NO_UNROLL
  while (turns.has_turn()) {
    copy_commit();
    copy_wait<0>();
    sync_warp();  // every lane's copies of this tile have landed
    u32 a[8][Input::kParts][4];
    float square[2], unit[2], y[64];
    Input::load(a, square, unit, stage);
    sync_warp();  // every lane has read the stage; the next tile is on its way while this one is encoded
    const Tile now = turns.tile;
    const int now_group = group;
    if (++group == kGroups) group = 0, turns.advance(args);
    if (turns.has_turn()) stage_input<Input>(stage, args, turns.tile, group);
    matrix_products<Plan>(y, a);
    if constexpr (!Input::kKnowsLengths) {
      KV_UNROLL
      for (int half = 0; half < 2; ++half) {
        float even = 0.f, odd = 0.f;
        KV_UNROLL
        for (int i = 2 * half; i < 64; i += 4) even = fma_rn(y[i], y[i], even), odd = fma_rn(y[i + 1], y[i + 1], odd);
        square[half] = (even + odd) * Plan::kSquareUnit;
      }
      sum_over_row(square);
    }
    KV_UNROLL
    for (int half = 0; half < 2; ++half) {
      const float inverse = rsqrt_fast(square[half]), norm = square[half] * inverse;
      const bool is_direction = has_direction(square[half]);
      const float factor = is_direction ? kTileStep * Plan::kDeviations * inverse * unit[half] : 0.f;
      u32 nibbles[4];
      KV_UNROLL
      for (int e = 0; e < 4; ++e) {
        float eight[8];
        KV_UNROLL
        for (int m = 0; m < 8; ++m) eight[m] = y[16 * e + m / 2 * 4 + 2 * half + m % 2];
        nibbles[e] = encode_eight(eight, factor, mine);
      }
      const float length = squared_length<Plan>(nibbles, mine);
      const int row = g + 8 * half;
      if (row < int(now.valid))
        store_group<Plan>(args, now.row(args, row), now_group, nibbles, norm, length, is_direction);
    }
  }
}

}  // namespace kv
