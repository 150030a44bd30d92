// Scales that few formats have: a factor in place of a divisor, scales over which the caller has one for the whole
// tensor, a choice between divisors, norms with an epsilon, and unbiased scales. They have the interface of
// formats/scales.cuh. An encoder R says by kFactor, kTries with other_divisor(i), and kEpsilon what it has of them.
// SPDX-License-Identifier: MIT
#pragma once
#include "formats/minifloat.cuh"
#include "formats/scales.cuh"

namespace kv {

struct AmaxTimes {  // d = max|x| * factor
  static constexpr bool kIsOfSpan = true;
  template <class R, int kPerLane>
  KV_DEVICE static void find(const float (&x)[kPerLane], float tensor_scale, Scales<kPerLane>& s) {
    Amax::find<R>(x, tensor_scale, s);
    KV_UNROLL
    for (int e = 0; e < kPerLane; ++e) s.d[e] = mul_rn(s.largest[e], R::kFactor);
  }
};

// d = max|x| / divisor, and 0 if |x| is at most kZeroNorm: writers that make x a unit vector first take such an x as 0.
struct AmaxOfNorm {
  static constexpr bool kIsOfSpan = true;
  template <class R, int kPerLane>
  KV_DEVICE static void find(const float (&x)[kPerLane], float tensor_scale, Scales<kPerLane>& s) {
    float norm[kPerLane];
    Norm::find<R>(x, tensor_scale, s);
    KV_UNROLL
    for (int e = 0; e < kPerLane; ++e) norm[e] = s.d[e];
    Amax::find<R>(x, tensor_scale, s);
    KV_UNROLL
    for (int e = 0; e < kPerLane; ++e)
      if (norm[e] <= R::kZeroNorm) s.d[e] = 0.f;
  }
};

// d = (1 / over) * (max|x| * (1 / divisor)), where values are code * d * over: `over` is the caller's number for the
// whole tensor if kIsOver, else 1. Of several divisors the one with the least squared error is taken, the first of
// equals. The division Over then finds d * over in Scales::largest.
template <bool kIsOver>
struct AmaxSearch {
  static constexpr bool kIsOfSpan = true;
  template <class R, int kPerLane>
  KV_DEVICE static void find(const float (&x)[kPerLane], float tensor_scale, Scales<kPerLane>& s) {
    const float over = kIsOver ? tensor_scale : 1.f;
    Amax::find<R>(x, tensor_scale, s);
    float amax[kPerLane], least[kPerLane];
    KV_UNROLL
    for (int e = 0; e < kPerLane; ++e) amax[e] = s.largest[e];
    KV_UNROLL
    for (int i = 0; i <= R::kTries; ++i) {
      const float divisor = i == 0 ? R::kDivisor : R::other_divisor(i - 1);
      float d[kPerLane], error[kPerLane];
      KV_UNROLL
      for (int e = 0; e < kPerLane; ++e) {
        d[e] = mul_rn(div_rn(1.f, over), mul_rn(amax[e], div_rn(1.f, divisor)));
        if (R::kLeast > 0.f && d[e] < R::kLeast) d[e] = R::kLeast;
        if constexpr (R::kByStored) d[e] = R::F::Number::decode(R::F::Number::encode(d[e]));
        const float unit = mul_rn(d[e], over);
        const u32 code = Reciprocal::code<R, typename R::F::Codes>(x[e], unit, Reciprocal::factor<R>(unit, 0.f));
        const float miss = add_rn(mul_rn(R::F::Codes::value(code), unit), -x[e]);
        error[e] = mul_rn(miss, miss);
      }
      if constexpr (R::kTries > 0) R::Lanes::template sum<R::kSpan>(error);
      KV_UNROLL
      for (int e = 0; e < kPerLane; ++e) {
        if (i > 0 && !(error[e] < least[e])) continue;
        least[e] = error[e], s.d[e] = d[e], s.largest[e] = mul_rn(d[e], over);
      }
    }
  }
};

template <class Refinement>
struct Times {  // a refined scale, times a factor
  template <class R, int kPerLane>
  KV_DEVICE static void refine(const float (&x)[kPerLane], const float (&c)[kPerLane], float (&d)[kPerLane]) {
    Refinement::template refine<R>(x, c, d);
    KV_UNROLL
    for (int e = 0; e < kPerLane; ++e) d[e] = mul_rn(d[e], R::kFactor);
  }
};

struct Over : Reciprocal {  // x * (1 / (d * over))
  template <class R>
  KV_DEVICE static float factor(float, float unit) {
    return Reciprocal::factor<R>(unit, 0.f);
  }
};

// It refines the scale as Weighted does, but a span of zeros keeps the scale as found.
struct WeightedOrFound {
  template <class R, int kPerLane>
  KV_DEVICE static void refine(const float (&x)[kPerLane], const float (&c)[kPerLane], float (&d)[kPerLane]) {
    float found[kPerLane], amax[kPerLane];
    KV_UNROLL
    for (int e = 0; e < kPerLane; ++e) found[e] = d[e], amax[e] = absolute(x[e]);
    Weighted::refine<R>(x, c, d);
    R::Lanes::template largest<R::kSpan>(amax);
    KV_UNROLL
    for (int e = 0; e < kPerLane; ++e)
      if (amax[e] == 0.f) d[e] = found[e];
  }
};

struct Unbiased {  // <x,x> / <x,c>, or 0 if that is not above 0
  template <class R, int kPerLane>
  KV_DEVICE static void refine(const float (&x)[kPerLane], const float (&c)[kPerLane], float (&d)[kPerLane]) {
    float xx[kPerLane], xc[kPerLane];
    KV_UNROLL
    for (int e = 0; e < kPerLane; ++e) xx[e] = mul_rn(x[e], x[e]), xc[e] = mul_rn(x[e], c[e]);
    R::Lanes::template sum<R::kSpan>(xx);
    R::Lanes::template sum<R::kSpan>(xc);
    KV_UNROLL
    for (int e = 0; e < kPerLane; ++e) d[e] = xc[e] > 0.f ? div_rn(xx[e], xc[e]) : 0.f;
  }
};

struct NormWithEpsilon : Reciprocal {  // x / (|x| + epsilon), with the rule Norm
  template <class R>
  KV_DEVICE static float factor(float d, float) {
    return div_rn(1.f, add_rn(d, R::kEpsilon));
  }
};

}  // namespace kv
