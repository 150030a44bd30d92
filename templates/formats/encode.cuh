// Encoding in registers: a rotated row becomes codes, the scales, minima and norms stored with them, and the signs of
// what the codes miss. One warp holds one row, value i in lane i % 32, register i / 32. An encoder R of the generator
// derives from EncoderDefaults. It names the format F and the rules of that format:
//
//   kSpan        values that a scale is computed over
//   kDivisor     number that scale rules divide by
//   Rule, Divide, Refine     of formats/scales.cuh
//   Rotation, Projection     of the values, and of the residual
//   Signs        fields of the unread signs, if kStoresSigns
//
// Where the last bit decides a stored byte, products and sums are not contracted. Rules on magnitudes give the bytes of
// the reference codec. Rules on norms, and sums behind a rotation, differ from its double precision only within 1e-6 of
// a bound.
// SPDX-License-Identifier: MIT
#pragma once
#include "device/simt.cuh"
#include "formats/scales.cuh"
#include "formats/stored_row.cuh"

namespace kv {

struct EncoderDefaults {
  // The way in which values are held: by the lanes of a warp, or (InLane) whole groups by one lane.
  using Lanes = AcrossLanes;
  static constexpr float kLeast = 0.f;          // the scale is at least this
  static constexpr bool kByStored = false;      // codes are chosen with the scale as it is stored
  static constexpr bool kZeroBytes = false;     // a block of tiny norm is all zero bytes
  static constexpr bool kRoundsToBf16 = false;  // rotated values are rounded to bf16 before they are coded
  // Outliers of a block, if each block stores its own mask: the largest magnitudes, the first of equals.
  static constexpr int kOutliers = 0;
  static constexpr bool kStoresSigns = false;  // signs of what the codes missed are stored, which no decoder reads
  // The residual is what the codes miss of the unit vector, before (kIsOriginal) or after the rotation. Its stored norm
  // is its length, or (kIsMean) the mean of its magnitudes, times kResidualUnit, and times |x| unless the format is
  // relative.
  static constexpr bool kIsOriginal = false, kIsMean = false;
  static constexpr float kResidualUnit = 1.f;
};

// An encoded row, as far as a lane holds it.
template <int kPerLane>
struct Encoding {
  u32 bits[kPerLane];             // the code as it is stored
  Place place[kPerLane];          // its section and its number there
  Scales<kPerLane> scales;        // scale, largest magnitude and minimum of its span
  float residual_norm[kPerLane];  // the stored norm of its span's residual
  bool sign[kPerLane];            // of the residual, or the sign that no decoder reads; set: not negative
};

// Masks of outliers, 32 channels a register: the mask of the format, or the largest values of each block.
template <class R, int kPerLane>
KV_DEVICE void choose_outliers(const float (&y)[kPerLane], u32 (&mask)[kPerLane]) {
  using F = typename R::F;
  constexpr int kWords = F::kBlock / 32;
  if constexpr (!F::kHasStoredMask) {
    KV_UNROLL
    for (int e = 0; e < kPerLane; ++e) mask[e] = F::mask_word(nullptr, e % kWords);
  } else {
    int larger_ones[kPerLane] = {};  // values of the block that are larger, or as large and before this one
    for (int i = 0; i < 32; ++i) {
      KV_UNROLL
      for (int e = 0; e < kPerLane; ++e) {
        const float other = absolute(shfl(y[e], i));
        KV_UNROLL
        for (int mine = e / kWords * kWords; mine < (e / kWords + 1) * kWords; ++mine) {
          const float own = absolute(y[mine]);
          larger_ones[mine] += other > own || (other == own && (e < mine || (e == mine && i < lane())));
        }
      }
    }
    KV_UNROLL
    for (int e = 0; e < kPerLane; ++e) mask[e] = ballot(larger_ones[e] < R::kOutliers);
  }
}

// Finds the section of each value, and the number of its code there.
template <class R, int kPerLane>
KV_DEVICE void find_places(const float (&y)[kPerLane], Place (&place)[kPerLane]) {
  using F = typename R::F;
  if constexpr (!F::kHasOutliers) {
    KV_UNROLL
    for (int e = 0; e < kPerLane; ++e) place[e] = {false, (e * 32 + lane()) % F::kBlock};
  } else {
    constexpr int kWords = F::kBlock / 32;
    u32 mask[kPerLane];
    choose_outliers<R>(y, mask);
    KV_UNROLL
    for (int e = 0; e < kPerLane; ++e) {
      int outliers = count_bits(mask[e] & ((1u << lane()) - 1));
      KV_UNROLL
      for (int w = e / kWords * kWords; w < e; ++w) outliers += count_bits(mask[w]);
      const bool is_outlier = mask[e] >> lane() & 1;
      place[e] = {is_outlier, is_outlier ? outliers : (e % kWords) * 32 + lane() - outliers};
    }
  }
}

// The code of x in its section.
template <class R>
KV_DEVICE u32 code_in(bool is_outlier, float x, float d, float factor) {
  using F = typename R::F;
  if constexpr (F::kHasOutliers)
    if (is_outlier) return R::Divide::template code<R, typename F::Outliers>(x, d, factor);
  return R::Divide::template code<R, typename F::Codes>(x, d, factor);
}
// The value of a code in its section, in units of the scale.
template <class F>
KV_DEVICE float level_in(bool is_outlier, u32 code) {
  if constexpr (F::kHasOutliers)
    if (is_outlier) return F::Outliers::value(code);
  return F::Codes::value(code);
}

// Encodes the residual r = unit vector - chosen entries: the signs of its projection, and its stored norm. x, y: the
// row before and after the rotation.
template <class R, int kPerLane>
KV_DEVICE void encode_residual(const float (&x)[kPerLane], const float (&y)[kPerLane], const float (&level)[kPerLane],
                               Encoding<kPerLane>& out) {
  float r[kPerLane], norm[kPerLane];
  KV_UNROLL
  for (int e = 0; e < kPerLane; ++e) r[e] = -level[e], norm[e] = mul_rn(y[e], y[e]);
  sum_over_groups<R::kSpan>(norm);
  if constexpr (R::kIsOriginal) R::Rotation::inverse(r);
  KV_UNROLL
  for (int e = 0; e < kPerLane; ++e) {
    norm[e] = sqrt_rn(norm[e]);
    const float inverse = norm[e] > kTinyNorm ? div_rn(1.f, norm[e]) : 0.f;
    r[e] = add_rn(r[e], mul_rn(R::kIsOriginal ? x[e] : y[e], inverse));
    out.residual_norm[e] = R::kIsMean ? absolute(r[e]) : mul_rn(r[e], r[e]);
  }
  sum_over_groups<R::kSpan>(out.residual_norm);
  KV_UNROLL
  for (int e = 0; e < kPerLane; ++e) {
    const float length = R::kIsMean ? out.residual_norm[e] / R::kSpan : sqrt_rn(out.residual_norm[e]);
    out.residual_norm[e] = length * R::kResidualUnit * (R::F::kIsRelative ? 1.f : norm[e]);
  }
  R::Projection::forward(r);
  KV_UNROLL
  for (int e = 0; e < kPerLane; ++e) out.sign[e] = r[e] >= 0.f;
}

// Encodes a row. x, y: the row before and after the rotation.
template <class R, int kPerLane>
KV_DEVICE void encode(const float (&x)[kPerLane], const float (&y)[kPerLane], float tensor_scale,
                      Encoding<kPerLane>& out) {
  using F = typename R::F;
  Scales<kPerLane>& s = out.scales;
  find_places<R>(y, out.place);
  R::Rule::template find<R>(y, tensor_scale, s);
  constexpr int kShared = R::Rule::kIsOfSpan ? R::Lanes::template registers_of<R::kSpan>() : kPerLane;
  float level[kPerLane], factor[kPerLane];
  bool is_zero[kPerLane];
  KV_UNROLL
  for (int e = 0; e < kPerLane; ++e) {
    if (e % kShared == 0) {
      is_zero[e] = R::kZeroBytes && s.d[e] <= kTinyNorm;
      if (R::kLeast > 0.f && s.d[e] < R::kLeast) s.d[e] = R::kLeast;
      if constexpr (R::kByStored) s.d[e] = F::Number::decode(F::Number::encode(s.d[e]));
      factor[e] = R::Divide::template factor<R>(s.d[e], s.largest[e]);
    } else {  // a value of the same span, whose factor is computed
      is_zero[e] = is_zero[e - 1], s.d[e] = s.d[e - 1], factor[e] = factor[e - 1];
    }
    const float shifted = F::kHasMinimum ? add_rn(y[e], -s.minimum[e]) : y[e];
    out.bits[e] = code_in<R>(out.place[e].is_outlier, shifted, s.d[e], factor[e]);
    level[e] = level_in<F>(out.place[e].is_outlier, out.bits[e]);
  }
  R::Refine::template refine<R>(y, level, s.d);
  if constexpr (F::kHasResidual) encode_residual<R>(x, y, level, out);
  KV_UNROLL
  for (int e = 0; e < kPerLane; ++e) {
    if constexpr (R::kStoresSigns) out.sign[e] = add_rn(y[e], -mul_rn(s.d[e], level[e])) >= 0.f;
    out.bits[e] ^= F::Codes::kCodeXor;
    if (is_zero[e]) {
      out.bits[e] = 0, s.d[e] = 0.f, out.sign[e] = false;
      if constexpr (F::kHasResidual) out.residual_norm[e] = 0.f;
    }
  }
}

}  // namespace kv
