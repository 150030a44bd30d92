// Rotary position embedding of a row that one warp holds: value i in lane i % 32, register i / 32. Pair (a, b) of
// values turns by its position's angle:
//
//   a' = a cos - b sin        b' = a sin + b cos
//
// An angle is kept as the fraction of a turn that a step of one position makes, in units of 2^-64: times an integer
// position the low 64 bits of the product are the fraction that is left, exact for any position, so no angle is ever
// large.
// SPDX-License-Identifier: MIT
#pragma once
#include "device/trigonometry.cuh"
#include "args/operations.cuh"
#include "device/simt.cuh"

namespace kv {

// Each pair's step, 8 bytes apart from `at` on. Once a block; double precision is slow on some devices.
template <int kThreads>
KV_DEVICE void fill_turns(const RopeArgs& rope, SharedAddress at) {
  for (int i = thread(); i < rope.dims / 2; i += kThreads) {
    double turns = rope.turns[i];
    if (rope.factors) turns /= double(rope.factors[i]);
    turns -= double(i64(turns));
    const i64 step = i64((turns < 0.5 ? turns : turns - 1) * 0x1p64);
    store_shared_u32(at + 8 * i, u32(step));
    store_shared_u32(at + 8 * i + 4, u32(step >> 32));
  }
}

// Of a pair at a position, from its step.
KV_DEVICE float angle_of(const u32 (&step)[2], int position) {
  constexpr float kUnit = 6.28318530718f * 0x1p-32f;
  const u32 place = u32(position), low = step[0] * place;
  // The upper half of the product; a negative position is 2^32 too much.
  const u32 high = multiply_high(step[0], place) + step[1] * place - (position < 0 ? step[0] : 0u);
  return float(int(high + (low >> 31))) * kUnit;
}

// turns: where fill_turns has put them; row: shared memory for the warp's values.
template <int kPerLane>
KV_DEVICE void rope(float (&x)[kPerLane], const RopeArgs& rope, int position, SharedAddress turns, float* row) {
  KV_UNROLL
  for (int e = 0; e < kPerLane; ++e) row[e * 32 + lane()] = x[e];
  sync_warp();
  const int half = rope.dims / 2;
  const bool by_halves = rope.pairs == RopePairs::halves;
  KV_UNROLL
  for (int e = 0; e < kPerLane; ++e) {
    const int i = e * 32 + lane() - rope.first;
    if (i < 0 || i >= rope.dims) continue;
    const bool is_second = by_halves ? i >= half : (i & 1) == 1;
    const int pair = by_halves ? (is_second ? i - half : i) : i / 2;
    const int other = by_halves ? (is_second ? i - half : i + half) : i ^ 1;
    u32 step[2];
    load_shared_u64(step, turns + 8 * pair);
    const float angle = angle_of(step, position), sine = sine_fast(angle), cosine = cosine_fast(angle),
                partner = row[rope.first + other];
    x[e] = rope.magnitude * (x[e] * cosine + (is_second ? partner : -partner) * sine);
  }
  sync_warp();  // every lane has read its partner
}

}  // namespace kv
