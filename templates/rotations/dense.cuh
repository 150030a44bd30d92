// Dense rotation of groups of kSize channels, by one warp in registers.
//
//   forward  y_i = sum_k R(i, k) . x_k        inverse: the transpose
//
// Value i of the row is in lane i % 32, register i / 32. Each x_k is broadcast to the warp in turn. Kernels that rotate
// back store the table by rows, all others by columns, so that the 32 lanes of a step read 32 neighbouring entries.
// SPDX-License-Identifier: MIT
#pragma once
#include "device/simt.cuh"

namespace kv {

// Table: kSize, kIsByRows, and at(). By rows at(i * kSize + k) = R(i, k), else at(k * kSize + i) = R(i, k).
template <class Table>
struct Dense {
  template <int kPerLane>
  KV_DEVICE static void forward(float (&x)[kPerLane]) {
    multiply<false>(x);
  }
  template <int kPerLane>
  KV_DEVICE static void inverse(float (&x)[kPerLane]) {
    multiply<true>(x);
  }

 private:
  static constexpr int kSize = Table::kSize, kRegisters = kSize / 32;
  static_assert(kSize % 32 == 0, "a dense rotation spans whole registers");

  template <bool kIsInverse, int kPerLane>
  KV_DEVICE static void multiply(float (&x)[kPerLane]) {
    constexpr int kGroups = kPerLane / kRegisters;
    static_assert(kPerLane % kRegisters == 0, "a row is whole groups");
    float y[kPerLane] = {};
    KV_UNROLL
    for (int from = 0; from < kRegisters; ++from) {
      float partial[kPerLane] = {};  // sums of 32 products: rounding errors grow with the longest chain of additions
      KV_UNROLL_BY(2)
      for (int source = 0; source < 32; ++source) {
        const int k = 32 * from + source;
        float x_k[kGroups];
        KV_UNROLL
        for (int group = 0; group < kGroups; ++group)
          x_k[group] = float_of(shfl(bits_of(x[group * kRegisters + from]), source));
        KV_UNROLL
        for (int e = 0; e < kRegisters; ++e) {
          const int i = 32 * e + lane();
          const float entry = Table::at(kIsInverse == Table::kIsByRows ? k * kSize + i : i * kSize + k);
          // Product and sum are not contracted, so that every compiler gives the same bits.
          KV_UNROLL
          for (int group = 0; group < kGroups; ++group)
            partial[group * kRegisters + e] = add_rn(partial[group * kRegisters + e], mul_rn(entry, x_k[group]));
        }
      }
      KV_UNROLL
      for (int e = 0; e < kPerLane; ++e) y[e] += partial[e];
    }
    KV_UNROLL
    for (int e = 0; e < kPerLane; ++e) x[e] = y[e];
  }
};

}  // namespace kv
