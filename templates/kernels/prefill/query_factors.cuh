// Queries beyond the range of fp16, in plans whose queries are f32 or bf16. Operands are halves, so a row whose largest
// number is not between 2^kLeastExponent and 2^kMostExponent is divided by a power of two of its own before it is
// rounded, and its scores are multiplied by that factor. Both are exact. Rows of ordinary size have the factor 1; a
// warp whose rows all have it multiplies nothing.
// SPDX-License-Identifier: MIT
#pragma once
#include "kernels/prefill/consumer.cuh"
#include "kernels/prefill/powers_of_two.cuh"

namespace kv {

template <class Plan>
requires requires {
  Plan::kQueryFactorsAt;
}
struct QueryFactors<Plan> {
  // q: the place of the warpgroup's queries; row: one of them.
  KV_DEVICE static SharedAddress place(SharedAddress q, int row) {
    return Plan::kQueryFactorsAt + (q - Plan::kQueriesAt) / Plan::kQueryBytes * (Plan::kBlocks * kBlockRows * 4) +
           row * 4;
  }
  // Divides a row, of which the lane has element e * 32 + lane, and stores its factor.
  template <int kPerLane>
  KV_DEVICE static void fit(float (&x)[kPerLane], SharedAddress q, int row) {
    float most = 0.f;
    KV_UNROLL
    for (int e = 0; e < kPerLane; ++e)
      if (has_element<Plan::kQueryStored>(e)) most = larger(most, absolute(x[e]));
    KV_UNROLL
    for (int mask = 1; mask < 32; mask <<= 1) most = larger(most, shfl_xor(most, mask));
    const int exponent = exponent_of_row(most);
    const float unit = power_of_two(-exponent);
    KV_UNROLL
    for (int e = 0; e < kPerLane; ++e) x[e] *= unit;
    if (lane() == 0) store_shared_u32(place(q, row), bits_of(power_of_two(exponent)));
  }
  // Whether a row of the warp has a factor. row: as of multiply().
  KV_DEVICE static bool are_needed(SharedAddress q, int row) {
    constexpr u32 kOne = 0x3f800000u;
    return any(load_staged_u32(place(q, row)) != kOne || load_staged_u32(place(q, row + 8)) != kOne);
  }
  // Multiplies the scores of the warpgroup's rows `row` and row + 8, which the lane has.
  template <int kScores>
  KV_DEVICE static void multiply(float (&s)[kScores], SharedAddress q, int row) {
    float factor[2];
    KV_UNROLL
    for (int h = 0; h < 2; ++h) factor[h] = float_of(load_staged_u32(place(q, row + 8 * h)));
    KV_UNROLL
    for (int i = 0; i < kScores; ++i) s[i] *= factor[i / 2 % 2];
  }
};

}  // namespace kv
