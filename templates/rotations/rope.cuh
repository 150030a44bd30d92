// Rotary position embedding of a row that one warp holds: value i in lane i % 32, register i / 32. A pair (a, b) of
// values is rotated by the angle of its position:
//
//   a' = a cos - b sin        b' = a sin + b cos
//
// A step is the rotation angle of one position, as a fraction of a full rotation in units of 2^-64. The low 64 bits of
// step x position are the rotation angle without its full rotations. They are exact for any integer position, so no
// angle is ever large.
// SPDX-License-Identifier: MIT
#pragma once
#include "device/trigonometry.cuh"
#include "args/operations.cuh"
#include "device/simt.cuh"

namespace kv {

// Stores the step of each pair of values in shared memory, 8 bytes a pair from `at` on. A block does this once, as
// double precision is slow on some devices. The caller synchronizes the block before rope() reads the steps.
template <int kThreads>
KV_DEVICE void fill_steps(const RopeArgs& rope, SharedAddress at) {
  for (int i = thread(); i < rope.dims / 2; i += kThreads) {
    double frequency = rope.frequencies[i];
    if (rope.factors) frequency /= double(rope.factors[i]);
    frequency -= double(i64(frequency));
    const i64 step = i64((frequency < 0.5 ? frequency : frequency - 1) * 0x1p64);
    store_shared_u32(at + 8 * i, u32(step));
    store_shared_u32(at + 8 * i + 4, u32(step >> 32));
  }
}

// The rotation angle of a pair at a position in radians, between -pi and pi, from the two words of its step.
KV_DEVICE float angle_of(const u32 (&step)[2], int position) {
  constexpr float kUnit = 6.28318530718f * 0x1p-32f;
  const u32 place = u32(position), low = step[0] * place;
  // The upper word of the product. A negative position is 2^32 too large as an unsigned one.
  const u32 high = multiply_high(step[0], place) + step[1] * place - (position < 0 ? step[0] : 0u);
  return float(int(high + (low >> 31))) * kUnit;
}

// Rotates a row to `position`. steps: the shared address of the steps that fill_steps stored. row: shared memory of
// this warp for the values.
template <int kPerLane>
KV_DEVICE void rope(float (&x)[kPerLane], const RopeArgs& rope, int position, SharedAddress steps, float* row) {
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
    load_shared_u64(step, steps + 8 * pair);
    const float angle = angle_of(step, position), sine = sine_fast(angle), cosine = cosine_fast(angle),
                partner = row[rope.first + other];
    x[e] = rope.magnitude * (x[e] * cosine + (is_second ? partner : -partner) * sine);
  }
  sync_warp();  // every lane has read its partner
}

}  // namespace kv
