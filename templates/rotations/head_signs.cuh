// Walsh-Hadamard transform of groups of kSize channels whose signs differ from group to group: S1 has a sign for each
// channel of the head (octave). Value i of the row is channel i of the head.
// SPDX-License-Identifier: MIT
#pragma once
#include "rotations/wht.cuh"

namespace kv {

// Signs: those of Wht, which has no pre signs here; head_signs(word), 32 sign bits of the head each.
template <class Signs>
struct HeadSignedWht {
  template <int kPerLane>
  KV_DEVICE static void forward(float (&x)[kPerLane]) {
    flip(x);
    Wht<Signs>::forward(x);
  }
  template <int kPerLane>
  KV_DEVICE static void inverse(float (&x)[kPerLane]) {
    Wht<Signs>::inverse(x);
    flip(x);
  }

 private:
  template <int kPerLane>
  KV_DEVICE static void flip(float (&x)[kPerLane]) {
    KV_UNROLL
    for (int e = 0; e < kPerLane; ++e)
      x[e] = float_of(bits_of(x[e]) ^ (Signs::head_signs(e) << (31 - lane()) & 0x80000000u));
  }
};

}  // namespace kv
