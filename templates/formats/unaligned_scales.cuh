// Stores scales that are wider than the alignment of rows: float32 numbers in layout rows, whose addresses are even.
// SPDX-License-Identifier: MIT
#pragma once
#include "formats/pack.cuh"

namespace kv {

// In place of store_numbers() of formats/pack.cuh.
template <class F, class Number, int kAt, int kPerLane>
requires(F::kHasUnalignedScales) KV_DEVICE void store_numbers(const StoredRow& to, const float (&numbers)[kPerLane]) {
  constexpr int kUnit = unit_of<F::kRowUnit>(kAt, F::kScaleStride, Number::kBytes);
  KV_UNROLL
  for (int e = 0; e < kPerLane; ++e) {
    const int i = e * 32 + lane();
    if (i % F::kGroup == 0)
      store_bytes<Number::kBytes, kUnit>(scales_of<F>(to, i) + kAt + group_of<F>(i) * Number::kBytes,
                                         Number::encode(numbers[e]));
  }
}

}  // namespace kv
