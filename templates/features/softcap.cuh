// Softcap: score = cap * tanh(score / cap). tanh(x) is 1 - 2 / (e^2x + 1), exact to 2^-22; the hardware's tanh is exact
// to 2^-11.
// SPDX-License-Identifier: MIT
#pragma once
#include "device/math.cuh"
#include "features/feature_list.cuh"

namespace kv {

// Numbers::kSoftcap: the cap, in units of natural exponents.
template <class Numbers>
struct Softcap : FeatureDefaults<Softcap<Numbers>> {
  static constexpr bool kNeedsWhole = true;

  template <class Row, class Loaded>
  KV_DEVICE static float apply(float score, const Row&, const Loaded&, int) {
    constexpr float kCap = Numbers::kSoftcap * kLog2E;
    return kCap - 2.f * kCap * reciprocal_fast(exp2_fast(score * (2.f / Numbers::kSoftcap)) + 1.f);
  }
};

}  // namespace kv
