// Scales with a zero point, with the interface of formats/scales.cuh. The rule finds in Scales::d the float32 that is
// stored: the scale, with the zero point in the low bits that F::kZeroMask marks. Scales::largest has the scale as it
// was found, by which values are divided. An encoder R says by kLeastStep what the scale is at least.
// SPDX-License-Identifier: MIT
#pragma once
#include "formats/scales.cuh"
#include "formats/zero_point_rows.cuh"

namespace kv {

struct ZeroPoint {  // d = (max x - min x) / divisor; the zero point is -min x / d, rounded to a code
  static constexpr bool kIsOfSpan = true;
  template <class R, int kPerLane>
  KV_DEVICE static void find(const float (&x)[kPerLane], float tensor_scale, Scales<kPerLane>& s) {
    MinStep::find<R>(x, tensor_scale, s);
    KV_UNROLL
    for (int e = 0; e < kPerLane; ++e) {
      if (s.d[e] < R::kLeastStep) s.d[e] = R::kLeastStep;
      s.largest[e] = s.d[e];
      const u32 zero = R::F::Codes::code(s.d[e] != 0.f ? div_rn(-s.minimum[e], s.d[e]) : 0.f);
      s.d[e] = float_of((bits_of(s.d[e]) & ~R::F::kZeroMask) | zero);
    }
  }
};

struct FromZeroPoint {  // x * (1 / d) + zero point
  template <class R>
  KV_DEVICE static float factor(float, float d) {
    return d != 0.f ? div_rn(1.f, d) : 0.f;
  }
  template <class R, class Codes>
  KV_DEVICE static u32 code(float x, float stored, float factor) {
    return Codes::code(add_rn(mul_rn(x, factor), float(bits_of(stored) & R::F::kZeroMask)));
  }
};

}  // namespace kv
