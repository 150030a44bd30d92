// Block-diagonal rotation of groups of kSize channels, by one warp in registers. Neighbouring channels mix in twos
// (Givens), threes (rotors) or fours (quaternions).
//
//   forward  y_i = sum_t C(i, t) . x_partner(i, t)        inverse: the transpose
//
// partner(i, 0) is channel i itself. In blocks of 2 or 4, partner(i, t) is channel i ^ t. In blocks of 3 it is the
// channel t places further on in its block, cyclic. The table is padded to whole blocks. A channel behind the last
// whole block of a group has C(i, 0) = 1 and zeros otherwise.
//
// Value i of the row is in lane i % 32, register i / 32.
// SPDX-License-Identifier: MIT
#pragma once
#include "device/simt.cuh"

namespace kv {

// Table: kSize, kWidth (channels of a block), and at(i * kWidth + t) = C(i, t).
template <class Table>
struct Blocks {
  template <int kPerLane>
  KV_DEVICE static void forward(float (&x)[kPerLane]) {
    mix<false>(x);
  }
  template <int kPerLane>
  KV_DEVICE static void inverse(float (&x)[kPerLane]) {
    mix<true>(x);
  }

 private:
  static constexpr int kSize = Table::kSize, kWidth = Table::kWidth;
  static_assert(kWidth >= 2 && kWidth <= 4, "blocks of 2, 3 or 4 channels");
  static_assert(kSize % 32 == 0 || 32 % kSize == 0, "a group begins at the same lane in every row");

  template <bool kIsInverse, int kPerLane>
  KV_DEVICE static void mix(float (&x)[kPerLane]) {
    float y[kPerLane];
    KV_UNROLL
    for (int e = 0; e < kPerLane; ++e) {
      const int channel = 32 * e % kSize + lane() % kSize;
      y[e] = Table::at(channel * kWidth) * x[e];
      if constexpr (kWidth == 3) {
        const int place = channel % 3;
        const float before2 = neighbour<-2>(x, e), before1 = neighbour<-1>(x, e);
        const float after1 = neighbour<1>(x, e), after2 = neighbour<2>(x, e);
        y[e] += coefficient<kIsInverse>(channel, place < 2 ? 1 : -2, 1) * (place < 2 ? after1 : before2);
        y[e] += coefficient<kIsInverse>(channel, place < 1 ? 2 : -1, 2) * (place < 1 ? after2 : before1);
      } else {
        KV_UNROLL
        for (int t = 1; t < kWidth; ++t)
          y[e] += coefficient<kIsInverse>(channel, (channel ^ t) - channel, t) * shfl_xor(x[e], t);
      }
    }
    KV_UNROLL
    for (int e = 0; e < kPerLane; ++e) x[e] = y[e];
  }

  // The coefficient by which `channel` takes its partner t, which lies `offset` channels further on.
  template <bool kIsInverse>
  KV_DEVICE static float coefficient(int channel, int offset, int t) {
    constexpr bool kIsCyclic = kWidth == 3;
    return kIsInverse ? Table::at((channel + offset) * kWidth + (kIsCyclic ? 3 - t : t))
                      : Table::at(channel * kWidth + t);
  }

  // The value kOffset channels further on in the row. Beyond the ends of the row the result is any value: no block
  // reaches across, so its coefficient is not used.
  template <int kOffset, int kPerLane>
  KV_DEVICE static float neighbour(const float (&x)[kPerLane], int e) {
    // The lane that reads this lane's value is at the other end of the warp, so it needs the register before or after.
    const bool is_wrapped = kOffset > 0 ? lane() < kOffset : lane() >= 32 + kOffset;
    const int other = kOffset > 0 ? (e + 1 < kPerLane ? e + 1 : e) : (e > 0 ? e - 1 : e);
    return float_of(shfl(bits_of(is_wrapped ? x[other] : x[e]), (lane() + kOffset) & 31));
  }
};

}  // namespace kv
