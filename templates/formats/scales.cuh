// How the scale of a span is found, how a value is brought into its units, and what is stored in the end. Values are
// held as R::Lanes of formats/groups.cuh says; every lane of a span learns its numbers. The rules are those of
// generator/formats/format.hpp (ScaleRule, Division, Refine); the generator names one of each in the encoder R, which
// has kSpan and kDivisor.
//
// The arithmetic is the format's own, step by step in fp32: where the last bit decides a stored byte nothing is
// contracted.
// SPDX-License-Identifier: MIT
#pragma once
#include "formats/groups.cuh"

namespace kv {

// Published quantizers take a span of this norm, or less, for zero.
constexpr float kTinyNorm = 1e-10f;

// Of each value's span.
template <int kPerLane>
struct Scales {
  float d[kPerLane];        // the scale
  float largest[kPerLane];  // max|x|: rules Amax and SignedMax
  float minimum[kPerLane];  // rule MinStep
};

// ---- rules ----

struct NoScale {
  static constexpr bool kIsOfSpan = false;
  template <class R, int kPerLane>
  KV_DEVICE static void find(const float (&)[kPerLane], float, Scales<kPerLane>& s) {
    KV_UNROLL
    for (int e = 0; e < kPerLane; ++e) s.d[e] = 1.f;
  }
};

struct TensorScale {
  static constexpr bool kIsOfSpan = false;
  template <class R, int kPerLane>
  KV_DEVICE static void find(const float (&)[kPerLane], float tensor_scale, Scales<kPerLane>& s) {
    KV_UNROLL
    for (int e = 0; e < kPerLane; ++e) s.d[e] = tensor_scale;
  }
};

struct Amax {  // d = max|x| / divisor
  static constexpr bool kIsOfSpan = true;
  template <class R, int kPerLane>
  KV_DEVICE static void find(const float (&x)[kPerLane], float, Scales<kPerLane>& s) {
    KV_UNROLL
    for (int e = 0; e < kPerLane; ++e) s.largest[e] = larger(absolute(x[e]), 0.f);
    R::Lanes::template largest<R::kSpan>(s.largest);
    KV_UNROLL
    for (int e = 0; e < kPerLane; ++e) s.d[e] = div_rn(s.largest[e], R::kDivisor);
  }
};

struct SignedMax {  // d = (the x of largest |x|, sign kept; the first of equals) / divisor
  static constexpr bool kIsOfSpan = true;
  template <class R, int kPerLane>
  KV_DEVICE static void find(const float (&x)[kPerLane], float, Scales<kPerLane>& s) {
    KV_UNROLL
    for (int e = 0; e < kPerLane; ++e) s.d[e] = x[e];
    R::Lanes::template best<R::kSpan>(s.d, 0.f, [](float a, float b) { return absolute(a) > absolute(b); });
    KV_UNROLL
    for (int e = 0; e < kPerLane; ++e) {
      s.largest[e] = absolute(s.d[e]);
      s.d[e] = div_rn(s.d[e], R::kDivisor);
    }
  }
};

// d = (max x - min x) / divisor; codes are those of x - min x. A span that begins with NaN is NaN. Of -0 and 0, the
// first is stored.
struct MinStep {
  static constexpr bool kIsOfSpan = true;
  template <class R, int kPerLane>
  KV_DEVICE static void find(const float (&x)[kPerLane], float, Scales<kPerLane>& s) {
    float highest[kPerLane], first[kPerLane];
    KV_UNROLL
    for (int e = 0; e < kPerLane; ++e) s.minimum[e] = highest[e] = first[e] = x[e];
    R::Lanes::template best<R::kSpan>(s.minimum, float_of(0x7f800000u), [](float a, float b) { return a < b; });
    R::Lanes::template largest<R::kSpan>(highest);
    R::Lanes::template first<R::kSpan>(first);
    KV_UNROLL
    for (int e = 0; e < kPerLane; ++e) {
      if (first[e] != first[e]) s.minimum[e] = first[e];
      const float range = add_rn(add_rn(highest[e], -s.minimum[e]), 0.f);  // never -0
      s.d[e] = div_rn(range, R::kDivisor);
    }
  }
};

struct Norm {  // d = |x|
  static constexpr bool kIsOfSpan = true;
  template <class R, int kPerLane>
  KV_DEVICE static void find(const float (&x)[kPerLane], float, Scales<kPerLane>& s) {
    KV_UNROLL
    for (int e = 0; e < kPerLane; ++e) s.d[e] = mul_rn(x[e], x[e]);
    R::Lanes::template sum<R::kSpan>(s.d);
    KV_UNROLL
    for (int e = 0; e < kPerLane; ++e) s.d[e] = sqrt_rn(s.d[e]);
  }
};

// ---- divisions: the code of x in units of d; factor: what a span's values have in common, found once ----

struct Reciprocal {
  template <class R>
  KV_DEVICE static float factor(float d, float) {
    return d != 0.f ? div_rn(1.f, d) : 0.f;
  }
  template <class R, class Codes>
  KV_DEVICE static u32 code(float x, float, float factor) {
    return Codes::code(mul_rn(x, factor));
  }
};
struct Quotient {
  // Both sides of a quotient are multiplied by it: the divisor and its reciprocal are normal numbers then, and the
  // dividend is beyond all numbers only where the quotient is.
  KV_DEVICE static float unit(float d) {
    return absolute(d) < 0x1p-60f ? 0x1p60f : absolute(d) > 0x1p60f ? 0x1p-60f : 1.f;
  }
  template <class R>
  KV_DEVICE static float factor(float d, float) {
    return div_rn(1.f, mul_rn(d, unit(d)));
  }
  // Correctly rounded: two corrections of x times the correctly rounded reciprocal (P. Markstein, IBM J. Res. Dev. 34,
  // 1990), as long as their remainders are exact. A quotient below 2^-42 may miss its last bits, and the last before
  // infinity may be that: numbers that have room for those are divided.
  template <class R, class Codes>
  KV_DEVICE static u32 code(float x, float d, float factor) {
    if constexpr (Codes::kIsWide) return Codes::code(d == 0.f ? 0.f : div_rn(x, d));
    const float dividend = mul_rn(x, unit(d)), divisor = mul_rn(d, unit(d)), first = mul_rn(dividend, factor);
    const float second = fma_rn(fma_rn(-first, divisor, dividend), factor, first);
    const float third = fma_rn(fma_rn(-second, divisor, dividend), factor, second);
    const bool is_number =
        absolute(first) > 0.f && absolute(first) < float_of(0x7f800000u);  // else -0, infinity, NaN are as they are
    return Codes::code(d == 0.f ? 0.f : is_number ? third : first);
  }
};
struct Ratio {  // by the largest magnitude, not by d
  template <class R>
  KV_DEVICE static float factor(float, float largest) {
    return largest > 1e-12f ? div_rn(R::kDivisor, largest) : 1.f;
  }
  template <class R, class Codes>
  KV_DEVICE static u32 code(float x, float, float factor) {
    return Codes::code(mul_rn(x, factor));
  }
};
struct Product {
  template <class R>
  KV_DEVICE static float factor(float d, float largest) {
    return R::F::Codes::kIsTable ? 0.f : Reciprocal::factor<R>(d, largest);
  }
  template <class R, class Codes>
  KV_DEVICE static u32 code(float x, float d, float factor) {
    if constexpr (Codes::kIsTable)
      return Codes::code_by_product(x, d);
    else
      return Reciprocal::code<R, Codes>(x, d, factor);
  }
};
struct UnitVector {  // rule Norm
  template <class R>
  KV_DEVICE static float factor(float d, float) {
    return d > kTinyNorm ? div_rn(1.f, d) : 0.f;
  }
  template <class R, class Codes>
  KV_DEVICE static u32 code(float x, float, float factor) {
    return Codes::code(mul_rn(x, factor));
  }
};

// ---- refinements: the scale that is stored, from x and the chosen entries c ----

struct AsFound {
  template <class R, int kPerLane>
  KV_DEVICE static void refine(const float (&)[kPerLane], const float (&)[kPerLane], float (&)[kPerLane]) {}
};

struct Matched {  // |x| / |c|: the decoded span is as long as x was
  template <class R, int kPerLane>
  KV_DEVICE static void refine(const float (&x)[kPerLane], const float (&c)[kPerLane], float (&d)[kPerLane]) {
    float xx[kPerLane], cc[kPerLane];
    KV_UNROLL
    for (int e = 0; e < kPerLane; ++e) xx[e] = mul_rn(x[e], x[e]), cc[e] = mul_rn(c[e], c[e]);
    R::Lanes::template sum<R::kSpan>(xx);
    R::Lanes::template sum<R::kSpan>(cc);
    KV_UNROLL
    for (int e = 0; e < kPerLane; ++e) {
      const float length = sqrt_rn(cc[e]);
      if (length > kTinyNorm) d[e] = div_rn(sqrt_rn(xx[e]), length);
    }
  }
};

struct LeastSquares {  // <x,c> / <c,c>
  template <class R, int kPerLane>
  KV_DEVICE static void refine(const float (&x)[kPerLane], const float (&c)[kPerLane], float (&d)[kPerLane]) {
    float xc[kPerLane], cc[kPerLane];
    KV_UNROLL
    for (int e = 0; e < kPerLane; ++e) xc[e] = mul_rn(x[e], c[e]), cc[e] = mul_rn(c[e], c[e]);
    R::Lanes::template sum<R::kSpan>(xc);
    R::Lanes::template sum<R::kSpan>(cc);
    KV_UNROLL
    for (int e = 0; e < kPerLane; ++e)
      if (sqrt_rn(cc[e]) > kTinyNorm) d[e] = div_rn(xc[e], cc[e]);
  }
};

// <w x,c> / <w c,c> with w = x^2, summed in the order of the values: the last bit of these sums decides iq4_nl's scale.
struct Weighted {
  template <class R, int kPerLane>
  KV_DEVICE static void refine(const float (&x)[kPerLane], const float (&c)[kPerLane], float (&d)[kPerLane]) {
    float xc[kPerLane], cc[kPerLane];
    KV_UNROLL
    for (int e = 0; e < kPerLane; ++e) {
      const float wc = mul_rn(mul_rn(x[e], x[e]), c[e]);
      xc[e] = mul_rn(wc, x[e]), cc[e] = mul_rn(wc, c[e]);
    }
    R::Lanes::template sum_in_order<R::kSpan>(xc);
    R::Lanes::template sum_in_order<R::kSpan>(cc);
    KV_UNROLL
    for (int e = 0; e < kPerLane; ++e) d[e] = cc[e] == 0.f ? 0.f : div_rn(xc[e], cc[e]);
  }
};

}  // namespace kv
