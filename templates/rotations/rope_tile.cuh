// Rotary positions of a tile (core/tile_values.cuh): neighbours turn inside a lane; halves of 64 or 128 values between two lanes, where the span
// begins at a multiple of its size. Other spans: rotations/rope.cuh.
// SPDX-License-Identifier: MIT
#pragma once
#include "core/operations.cuh"
#include "core/simt.cuh"
#include "rotations/rope.cuh"

namespace kv {

// group: of the head's values; position: of rows g and g + 8; turns: where fill_turns has put them.
KV_DEVICE void rope_tile(float (&y)[8][2][4], const RopeArgs& rope, int group, const int (&position)[2],
                         SharedAddress turns) {
  const int first = group * 128 + (lane() & 3) * 32 - rope.first, half_dims = rope.dims / 2;
  const bool by_halves = rope.pairs == RopePairs::halves;
  KV_UNROLL
  for (int e = 0; e < 32; e += 2) {
    float(&v)[4] = y[e / 4][e / 2 % 2];
    const int at = first + e;
    float partner[4];
    KV_UNROLL
    for (int i = 0; i < 4; ++i) partner[i] = by_halves ? shfl_xor(v[i], half_dims / 32) : v[i ^ 1];
    if (at < 0 || at >= rope.dims) continue;
    KV_UNROLL
    for (int i = 0; i < 2; ++i) {
      const bool is_second = by_halves ? at >= half_dims : i == 1;
      u32 step[2];
      load_shared_u64(step, turns + 8 * (by_halves ? at + i - is_second * half_dims : at / 2));
      KV_UNROLL
      for (int half = 0; half < 2; ++half) {
        const float angle = angle_of(step, position[half]), sine = sine_fast(angle), cosine = cosine_fast(angle);
        const float other = partner[2 * half + i];
        v[2 * half + i] = rope.magnitude * (v[2 * half + i] * cosine + (is_second ? other : -other) * sine);
      }
    }
  }
}

}  // namespace kv
