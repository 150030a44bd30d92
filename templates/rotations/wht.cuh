// Signed Walsh-Hadamard transform of groups of kSize channels, by one warp in registers.
//
//   forward  y = S2 . (1/sqrt n) . H . S1 . x        inverse  x = S1 . (1/sqrt n) . H . S2 . y
//
// n is kSize. H is in Sylvester (natural) order. S1 are the pre signs and S2 the post signs; a set bit means -1. Value
// i of the row is in lane i % 32, register i / 32, so butterflies of stride < 32 cross lanes and the others stay inside
// a lane. The transform takes any number of groups and neither shared nor local memory.
// SPDX-License-Identifier: MIT
#pragma once
#include "device/simt.cuh"

namespace kv {

// Signs: kSize; kNorm = 1 / sqrt(kSize); pre_signs(word) and post_signs(word), 32 sign bits each. A group below 32
// repeats its signs inside the word.
template <class Signs>
struct Wht {
  template <int kPerLane>
  KV_DEVICE static void forward(float (&x)[kPerLane]) {
    KV_UNROLL
    for (int e = 0; e < kPerLane; ++e) x[e] = flip(x[e], Signs::pre_signs(e * 32 % Signs::kSize / 32));
    butterflies(x);
    KV_UNROLL
    for (int e = 0; e < kPerLane; ++e) x[e] = flip(x[e] * Signs::kNorm, Signs::post_signs(e * 32 % Signs::kSize / 32));
  }

  template <int kPerLane>
  KV_DEVICE static void inverse(float (&x)[kPerLane]) {
    KV_UNROLL
    for (int e = 0; e < kPerLane; ++e) x[e] = flip(x[e], Signs::post_signs(e * 32 % Signs::kSize / 32));
    butterflies(x);
    KV_UNROLL
    for (int e = 0; e < kPerLane; ++e) x[e] = flip(x[e] * Signs::kNorm, Signs::pre_signs(e * 32 % Signs::kSize / 32));
  }

  // The transform of whole groups that one lane holds, value i in register i; kSize is at most 32.
  template <int kValues>
  KV_DEVICE static void forward_in_lane(float (&x)[kValues]) {
    flip_all(x, Signs::pre_signs(0), 1.f);
    butterflies_in_lane(x);
    flip_all(x, Signs::post_signs(0), Signs::kNorm);
  }
  template <int kValues>
  KV_DEVICE static void inverse_in_lane(float (&x)[kValues]) {
    flip_all(x, Signs::post_signs(0), 1.f);
    butterflies_in_lane(x);
    flip_all(x, Signs::pre_signs(0), Signs::kNorm);
  }

 private:
  template <int kValues>
  KV_DEVICE static void flip_all(float (&x)[kValues], u32 signs, float factor) {
    static_assert(Signs::kSize <= 32 && kValues % Signs::kSize == 0, "groups do not fill the lane");
    KV_UNROLL
    for (int i = 0; i < kValues; ++i) x[i] = float_of(bits_of(x[i] * factor) ^ (signs >> i % 32 & 1) << 31);
  }
  template <int kValues>
  KV_DEVICE static void butterflies_in_lane(float (&x)[kValues]) {
    KV_UNROLL
    for (int stride = 1; stride < Signs::kSize; stride <<= 1) {
      KV_UNROLL
      for (int i = 0; i < kValues; ++i)
        if ((i & stride) == 0) {
          const float a = x[i], b = x[i + stride];
          x[i] = a + b;
          x[i + stride] = a - b;
        }
    }
  }
  KV_DEVICE static float flip(float x, u32 signs) {
    return float_of(bits_of(x) ^ (signs << (31 - lane()) & 0x80000000u));
  }

  template <int kPerLane>
  KV_DEVICE static void butterflies(float (&x)[kPerLane]) {
    KV_UNROLL
    for (int stride = 1; stride < 32 && stride < Signs::kSize; stride <<= 1) {
      const float sign = lane() & stride ? -1.f : 1.f;
      KV_UNROLL
      for (int e = 0; e < kPerLane; ++e) x[e] = x[e] * sign + shfl_xor(x[e], stride);
    }
    KV_UNROLL
    for (int stride = 1; stride * 32 < Signs::kSize; stride <<= 1) {
      KV_UNROLL
      for (int e = 0; e < kPerLane; ++e)
        if ((e & stride) == 0) {
          const float a = x[e], b = x[e + stride];
          x[e] = a + b;
          x[e + stride] = a - b;
        }
    }
  }
};

}  // namespace kv
