// Scales. Rules find the scale of a span, divisions bring a value into its units, and refinements choose the scale that
// is stored. The generator names one of each in the encoder R, which also has kSpan and kDivisor. They are those of
// generator/formats/format.hpp: ScaleRule, Division, Refine.
//
// Values are held as R::Lanes says (formats/groups.cuh). Every lane of a span gets the Scales of the span.
//
// The arithmetic is the format's own, step by step in fp32. Where the last bit decides a stored byte, nothing is
// contracted.
// SPDX-License-Identifier: MIT
#pragma once
#include "formats/groups.cuh"

namespace kv {

// Published quantizers treat a span of this norm, or less, as zero.
constexpr float kTinyNorm = 1e-10f;

// Scale, largest magnitude and minimum of the span that each value belongs to.
template <int kPerLane>
struct Scales {
  float d[kPerLane];        // the scale
  float largest[kPerLane];  // max|x|, found by the rules Amax and SignedMax
  float minimum[kPerLane];  // min x, found by the rule MinStep
};

// ---- rules: kIsOfSpan says that the values of a span have the same Scales, which differ from span to span ----

struct NoScale {  // d = 1
  static constexpr bool kIsOfSpan = false;
  template <class R, int kPerLane>
  KV_DEVICE static void find(const float (&)[kPerLane], float, Scales<kPerLane>& s) {
    KV_UNROLL
    for (int e = 0; e < kPerLane; ++e) s.d[e] = 1.f;
  }
};

struct TensorScale {  // d is one number for the whole tensor, which the caller passes
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

// d = (max x - min x) / divisor; codes are those of x - min x. If the first value of a span is NaN, minimum and d are
// NaN. If the least values are -0 and 0, the first of them is stored.
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

// ---- divisions: the code of x in units of d. factor(): what the values of a span have in common, computed once ----

struct Reciprocal {  // x * (1 / d); where d is 0, a zero with the sign of x
  template <class R>
  KV_DEVICE static float factor(float d, float) {
    return d != 0.f ? div_rn(1.f, d) : 0.f;
  }
  template <class R, class Codes>
  KV_DEVICE static u32 code(float x, float, float factor) {
    return Codes::code(mul_rn(x, factor));
  }
};
struct Quotient {  // x / d, correctly rounded
  // A factor for both sides of the quotient. With it the divisor and its reciprocal are normal numbers, and the
  // dividend overflows only if the quotient does.
  KV_DEVICE static float unit(float d) {
    return absolute(d) < 0x1p-60f ? 0x1p60f : absolute(d) > 0x1p60f ? 0x1p-60f : 1.f;
  }
  template <class R>
  KV_DEVICE static float factor(float d, float) {
    return div_rn(1.f, mul_rn(d, unit(d)));
  }
  // Multiplies x by the correctly rounded reciprocal and corrects the product twice, which gives the correctly rounded
  // quotient as long as the remainders are exact (P. Markstein, IBM J. Res. Dev. 34, 1990). A quotient below 2^-42 may
  // miss its last bits, and the largest number may come out as infinity. Wide number types can tell, so they divide.
  template <class R, class Codes>
  KV_DEVICE static u32 code(float x, float d, float factor) {
    if constexpr (Codes::kIsWide) return Codes::code(d == 0.f ? 0.f : div_rn(x, d));
    const float dividend = mul_rn(x, unit(d)), divisor = mul_rn(d, unit(d)), first = mul_rn(dividend, factor);
    const float second = fma_rn(fma_rn(-first, divisor, dividend), factor, first);
    const float third = fma_rn(fma_rn(-second, divisor, dividend), factor, second);
    // A first product of 0, infinity or NaN is the result as it is.
    const bool is_number = absolute(first) > 0.f && absolute(first) < float_of(0x7f800000u);
    return Codes::code(d == 0.f ? 0.f : is_number ? third : first);
  }
};
struct Ratio {  // x * (divisor / max|x|), without d
  template <class R>
  KV_DEVICE static float factor(float, float largest) {
    return largest > 1e-12f ? div_rn(R::kDivisor, largest) : 1.f;
  }
  template <class R, class Codes>
  KV_DEVICE static u32 code(float x, float, float factor) {
    return Codes::code(mul_rn(x, factor));
  }
};
struct Product {  // x is compared with bound * d; codes without a table take x * (1 / d)
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
struct UnitVector {  // x / |x|, with the rule Norm; a tiny span gives the code of 0
  template <class R>
  KV_DEVICE static float factor(float d, float) {
    return d > kTinyNorm ? div_rn(1.f, d) : 0.f;
  }
  template <class R, class Codes>
  KV_DEVICE static u32 code(float x, float, float factor) {
    return Codes::code(mul_rn(x, factor));
  }
};

// ---- refinements: the scale that is stored, from x and the chosen entries c in units of d ----

struct AsFound {  // d itself
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

// <w x,c> / <w c,c> with w = x^2. The sums are in the order of the values: their last bit decides the scale of iq4_nl.
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
