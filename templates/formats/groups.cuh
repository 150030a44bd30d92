// Reductions over groups of neighbouring values of a row. A warp holds the row: value i in lane i % 32, register i /
// 32. A group is a power of two of lanes of one register, or whole registers. At the end, AcrossLanes and InLane give
// encoders one interface for values that a warp holds and for groups that one lane holds.
// SPDX-License-Identifier: MIT
#pragma once
#include "device/simt.cuh"

namespace kv {

// Replaces every value by `combine` over its group.
template <int kGroup, class Combine, int kPerLane>
KV_DEVICE void over_groups(float (&x)[kPerLane], const Combine& combine) {
  constexpr int kRegisters = kGroup <= 32 ? 1 : kGroup / 32;
  static_assert(kPerLane % kRegisters == 0 && (kGroup < 32 || kGroup % 32 == 0), "groups do not fill the row");
  KV_UNROLL
  for (int first = 0; first < kPerLane; first += kRegisters) {
    KV_UNROLL
    for (int e = 1; e < kRegisters; ++e) x[first] = combine(x[first], x[first + e]);
    KV_UNROLL
    for (int stride = 1; stride < 32 && stride < kGroup; stride <<= 1)
      x[first] = combine(x[first], shfl_xor(x[first], stride));
    KV_UNROLL
    for (int e = 1; e < kRegisters; ++e) x[first + e] = x[first];
  }
}

template <int kGroup, int kPerLane>
KV_DEVICE void sum_over_groups(float (&x)[kPerLane]) {
  over_groups<kGroup>(x, [](float a, float b) { return add_rn(a, b); });
}
template <int kGroup, int kPerLane>
KV_DEVICE void largest_of_groups(float (&x)[kPerLane]) {
  over_groups<kGroup>(x, [](float a, float b) { return larger(a, b); });
}

// Sums in the order of the values, for formats whose last bit depends on it. This is slow: a shuffle a value.
template <int kGroup, int kPerLane>
KV_DEVICE void sum_groups_in_order(float (&x)[kPerLane]) {
  constexpr int kRegisters = kGroup <= 32 ? 1 : kGroup / 32, kLanes = kGroup < 32 ? kGroup : 32;
  for (int first = 0; first < kPerLane; first += kRegisters) {
    float sum = 0.f;
    KV_UNROLL
    for (int e = 0; e < kRegisters; ++e)
      for (int i = 0; i < kLanes; ++i) sum = add_rn(sum, shfl(x[first + e], (lane() & ~(kLanes - 1)) + i));
    KV_UNROLL
    for (int e = 0; e < kRegisters; ++e) x[first + e] = sum;
  }
}

// Replaces every value by the one of its group that no other beats, the first of equals. Every value that counts beats
// `least`. A NaN beats nothing.
template <int kGroup, int kPerLane, class Beats>
KV_DEVICE void best_of_groups(float (&x)[kPerLane], float least, const Beats& beats) {
  constexpr int kRegisters = kGroup <= 32 ? 1 : kGroup / 32;
  KV_UNROLL
  for (int first = 0; first < kPerLane; first += kRegisters) {
    float best = least;
    u32 at = 0xffffu;
    KV_UNROLL
    for (int e = 0; e < kRegisters; ++e)
      if (beats(x[first + e], best)) best = x[first + e], at = e * 32 + lane();
    KV_UNROLL
    for (int stride = 1; stride < 32 && stride < kGroup; stride <<= 1) {
      const float other = shfl_xor(best, stride);
      const u32 other_at = shfl_xor(at, stride);
      const bool wins = beats(other, best) || (!beats(best, other) && other_at < at);
      best = wins ? other : best;
      at = wins ? other_at : at;
    }
    KV_UNROLL
    for (int e = 0; e < kRegisters; ++e) x[first + e] = best;
  }
}

// Replaces every value by the first of its group.
template <int kGroup, int kPerLane>
KV_DEVICE void first_of_groups(float (&x)[kPerLane]) {
  constexpr int kRegisters = kGroup <= 32 ? 1 : kGroup / 32, kLanes = kGroup < 32 ? kGroup : 32;
  KV_UNROLL
  for (int e = 0; e < kPerLane; ++e) x[e] = e % kRegisters == 0 ? shfl(x[e], lane() & ~(kLanes - 1)) : x[e - 1];
}

// Reductions for an encoder whose values are held by the lanes of a warp, as above.
struct AcrossLanes {
  // The number of consecutive registers that hold values of one group.
  template <int kGroup>
  KV_DEVICE static constexpr int registers_of() {
    return kGroup <= 32 ? 1 : kGroup / 32;
  }
  template <int kGroup, int kPerLane>
  KV_DEVICE static void sum(float (&x)[kPerLane]) {
    sum_over_groups<kGroup>(x);
  }
  template <int kGroup, int kPerLane>
  KV_DEVICE static void sum_in_order(float (&x)[kPerLane]) {
    sum_groups_in_order<kGroup>(x);
  }
  template <int kGroup, int kPerLane>
  KV_DEVICE static void largest(float (&x)[kPerLane]) {
    largest_of_groups<kGroup>(x);
  }
  template <int kGroup, int kPerLane, class Beats>
  KV_DEVICE static void best(float (&x)[kPerLane], float least, const Beats& beats) {
    best_of_groups<kGroup>(x, least, beats);
  }
  template <int kGroup, int kPerLane>
  KV_DEVICE static void first(float (&x)[kPerLane]) {
    first_of_groups<kGroup>(x);
  }
};

// Reductions for an encoder whose groups are each held by one lane, value i in register i.
struct InLane {
  template <int kGroup>
  KV_DEVICE static constexpr int registers_of() {
    return kGroup;
  }
  // Replaces every value by what `fold` makes of its group, in order, beginning with `start`.
  template <int kGroup, int kPerLane, class Fold>
  KV_DEVICE static void fold_groups(float (&x)[kPerLane], float start, const Fold& fold) {
    static_assert(kPerLane % kGroup == 0, "groups do not fill the lane");
    KV_UNROLL
    for (int begin = 0; begin < kPerLane; begin += kGroup) {
      float result = start;
      KV_UNROLL
      for (int e = 0; e < kGroup; ++e) result = fold(result, x[begin + e]);
      KV_UNROLL
      for (int e = 0; e < kGroup; ++e) x[begin + e] = result;
    }
  }
  template <int kGroup, int kPerLane>
  KV_DEVICE static void sum(float (&x)[kPerLane]) {
    fold_groups<kGroup>(x, 0.f, [](float a, float b) { return add_rn(a, b); });
  }
  template <int kGroup, int kPerLane>
  KV_DEVICE static void sum_in_order(float (&x)[kPerLane]) {
    sum<kGroup>(x);
  }
  template <int kGroup, int kPerLane>
  KV_DEVICE static void largest(float (&x)[kPerLane]) {
    fold_groups<kGroup>(x, -float_of(0x7f800000u), [](float a, float b) { return larger(a, b); });
  }
  template <int kGroup, int kPerLane, class Beats>
  KV_DEVICE static void best(float (&x)[kPerLane], float least, const Beats& beats) {
    fold_groups<kGroup>(x, least, [&](float a, float b) { return beats(b, a) ? b : a; });
  }
  template <int kGroup, int kPerLane>
  KV_DEVICE static void first(float (&x)[kPerLane]) {
    KV_UNROLL
    for (int e = 0; e < kPerLane; ++e) x[e] = x[e / kGroup * kGroup];
  }
};

}  // namespace kv
