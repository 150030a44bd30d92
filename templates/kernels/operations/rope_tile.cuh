// RoPE of a bulk tile, in the layout of kernels/operations/tile_values.cuh. A span is the values of a row that RoPE
// rotates (RopeArgs::dims of them from RopeArgs::first on), in pairs.
//
// Pairs of neighbours lie in one lane. Pairs of one value from each half of the span lie in two lanes, if the span has
// 64 or 128 values and begins at a multiple of its size. rotations/rope.cuh, one row a warp, serves every other span.
// SPDX-License-Identifier: MIT
#pragma once
#include "args/operations.cuh"
#include "device/simt.cuh"
#include "rotations/rope.cuh"

namespace kv {

// Rotates pairs of neighbours. A lane holds both values of a pair, so it computes the angle once. at: the place in the
// span of the lane's first value.
KV_DEVICE void rope_neighbours(float (&y)[8][2][4], const RopeArgs& rope, int at, const int (&position)[2],
                               SharedAddress steps) {
  KV_UNROLL
  for (int e = 0; e < 32; e += 2) {
    if (at + e < 0 || at + e >= rope.dims) continue;
    float(&v)[4] = y[e / 4][e / 2 % 2];
    u32 step[2];
    load_shared_u64(step, steps + 4 * (at + e));
    KV_UNROLL
    for (int half = 0; half < 2; ++half) {
      const float angle = angle_of(step, position[half]), sine = sine_fast(angle), cosine = cosine_fast(angle);
      const float a = v[2 * half], b = v[2 * half + 1];
      v[2 * half] = rope.magnitude * (a * cosine - b * sine);
      v[2 * half + 1] = rope.magnitude * (a * sine + b * cosine);
    }
  }
}

// Rotates pairs of halves. Another lane holds the partners of the lane's values, and the same pairs. Each of the two
// computes the angles of one of the rows g and g + 8, and they exchange sines and cosines.
KV_DEVICE void rope_halves(float (&y)[8][2][4], const RopeArgs& rope, int at, const int (&position)[2],
                           SharedAddress steps) {
  const int half_dims = rope.dims / 2, apart = half_dims / 32;
  const bool is_second = at >= half_dims, is_in = at >= 0 && at < rope.dims;
  const int pair = is_in ? at - is_second * half_dims : 0, mine = is_second ? position[1] : position[0];
  KV_UNROLL
  for (int e = 0; e < 32; ++e) {
    float(&v)[4] = y[e / 4][e / 2 % 2];
    u32 step[2];
    load_shared_u64(step, steps + 8 * (pair + e));
    const float angle = angle_of(step, mine), sine = sine_fast(angle), cosine = cosine_fast(angle);
    const float other_sine = shfl_xor(sine, apart), other_cosine = shfl_xor(cosine, apart);
    KV_UNROLL
    for (int half = 0; half < 2; ++half) {
      const bool is_mine = is_second == (half == 1);
      const float s = is_mine ? sine : other_sine, c = is_mine ? cosine : other_cosine;
      float& value = v[2 * half + e % 2];
      const float partner = shfl_xor(value, apart);
      if (is_in) value = rope.magnitude * (value * c + (is_second ? partner : -partner) * s);
    }
  }
}

// group: number of the group in the head. position: the positions of rows g and g + 8. steps: the shared address of the
// steps that fill_steps has written.
KV_DEVICE void rope_tile(float (&y)[8][2][4], const RopeArgs& rope, int group, const int (&position)[2],
                         SharedAddress steps) {
  const int at = group * 128 + (lane() & 3) * 32 - rope.first;
  if (rope.pairs == RopePairs::halves)
    rope_halves(y, rope, at, position, steps);
  else
    rope_neighbours(y, rope, at, position, steps);
}

}  // namespace kv
