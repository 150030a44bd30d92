// Stored rows, value by value: where each code, scale, minimum and norm lies, and what it means. This is the readable
// decoder. reference, dequantize and other kernels of one row a warp use it. The tensor-core kernels have decoders of
// their own for the same bytes.
//
//   layout rows      a row is whole blocks, kCodeStride = kScaleStride bytes each
//   layout planar    the fields of codes form the row of codes, kCodeStride bytes a block; all other fields form the
//                    row of scales, kScaleStride bytes a block
//
// The generator derives the struct F of a format from FormatDefaults. F states what differs from the defaults, and:
//   kIsPlanar, kStored (values a row), kBlock (values a block), kGroup (values that share a scale);
//   kCodeStride, kScaleStride; kRowUnit (the widest store that the alignment of rows allows, in bytes);
//   Codes: the first section, of formats/codes.cuh;
//   kScaleAt, kMinimumAt, kResidualNormAt, kMaskAt: the place in a block of what the format stores of these, in bytes.
// SPDX-License-Identifier: MIT
#pragma once
#include "args/attention.cuh"
#include "device/simt.cuh"
#include "formats/codes.cuh"
#include "formats/groups.cuh"

namespace kv {

struct FormatDefaults {
  static constexpr bool kHasScale = false,      // each group stores a scale
      kHasTensorScale = false,                  // the caller passes one scale for the whole tensor
      kHasMinimum = false;                      // each group stores a minimum, which is added to its values
  static constexpr bool kRenormalises = false;  // decoding divides by the length of the block's entries
  using Number = F16;                           // the type of the stored scale
  // Outliers are channels of a mask whose codes form a section of their own, Outliers. mask_word(scales, w) has 32
  // channels; a set bit is an outlier. kHasStoredMask: each block stores its own mask.
  static constexpr bool kHasOutliers = false, kHasStoredMask = false;
  // A residual is a sign a value (ResidualSigns) and a norm a group. It stands for sign * norm * kResidualFactor, times
  // the scale if kIsRelative.
  static constexpr bool kHasResidual = false, kIsRelative = true;
  static constexpr float kResidualFactor = 1.f;
};

// The start of the bytes of one (sequence, KV head, token).
struct StoredRow {
  u8* codes;
  u8* scales;  // in layout rows: the same as codes
};

template <class F>
KV_DEVICE StoredRow stored_row(const CacheSide& side, i64 sequence, i64 head, i64 token) {
  u8* const codes = side.codes + sequence * side.codes_sequence_stride + head * side.codes_head_stride +
                    token * side.codes_token_stride;
  if constexpr (F::kIsPlanar)
    return {codes, side.scales + sequence * side.scales_sequence_stride + head * side.scales_head_stride +
                       token * side.scales_token_stride};
  else
    return {codes, codes};
}

// The row `by` tokens behind `row`, of the same head. Other forms use the last arguments: the sequence, head and token
// of `row`.
template <class F>
KV_DEVICE StoredRow stored_row_behind(const StoredRow& row, const CacheSide& side, i64, i64, i64, int by) {
  u8* const codes = row.codes + by * side.codes_token_stride;
  if constexpr (F::kIsPlanar)
    return {codes, row.scales + by * side.scales_token_stride};
  else
    return {codes, codes};
}

// The bytes of the block that value i is in.
template <class F>
KV_DEVICE u8* codes_of(const StoredRow& row, int i) {
  return row.codes + i64(i / F::kBlock) * F::kCodeStride;
}
template <class F>
KV_DEVICE u8* scales_of(const StoredRow& row, int i) {
  return row.scales + i64(i / F::kBlock) * F::kScaleStride;
}
// The number of value i's group in its block.
template <class F>
KV_DEVICE int group_of(int i) {
  return i % F::kBlock / F::kGroup;
}

// The section of a channel, and the number of its code there. A damaged mask may mark too many channels. Those share
// the last code, so that nothing outside the block is read.
struct Place {
  bool is_outlier;
  int k;
};
template <class F>
KV_DEVICE Place place_of(const u8* scales, int channel) {
  int outliers = 0;  // outliers below the channel
  for (int w = 0; w < channel / 32; ++w) outliers += count_bits(F::mask_word(scales, w));
  const u32 mask = F::mask_word(scales, channel / 32);
  outliers += count_bits(mask & ((1u << channel % 32) - 1));
  const bool is_outlier = mask >> channel % 32 & 1;
  const int k = is_outlier ? outliers : channel - outliers,
            last = (is_outlier ? F::Outliers::kCount : F::Codes::kCount) - 1;
  return {is_outlier, k < last ? k : last};
}

// The value of code k of a section, in units of its scale.
template <class Section>
KV_DEVICE float load_from(const u8* codes, int k) {
  return Section::value(Section::Fields::load(codes, k) ^ Section::kCodeXor);
}

// Value i in units of its scale.
template <class F>
KV_DEVICE float load_level(const StoredRow& row, int i) {
  const u8* const codes = codes_of<F>(row, i);
  if constexpr (F::kHasOutliers) {
    const Place place = place_of<F>(scales_of<F>(row, i), i % F::kBlock);
    return place.is_outlier ? load_from<typename F::Outliers>(codes, place.k)
                            : load_from<typename F::Codes>(codes, place.k);
  } else {
    return load_from<typename F::Codes>(codes, i % F::kBlock);
  }
}

// The scale of value i; 1 if none is stored.
template <class F>
KV_DEVICE float load_scale(const StoredRow& row, int i) {
  if constexpr (F::kHasScale) {
    constexpr int kBytes = F::Number::kBytes;
    return F::Number::decode(load_bytes<kBytes>(scales_of<F>(row, i) + F::kScaleAt + group_of<F>(i) * kBytes));
  } else {
    return 1.f;
  }
}

// Value i in the domain of the stored row. shrink: the number that the scale is divided by first: 1, or the length of
// the block's entries if the format renormalises.
template <class F>
KV_DEVICE float load_value(const StoredRow& row, int i, float shrink = 1.f) {
  const float level = load_level<F>(row, i);
  float scale = load_scale<F>(row, i), minimum = 0.f;
  if constexpr (F::kRenormalises) scale = shrink > 0.f ? scale / shrink : scale;
  if constexpr (F::kHasMinimum)
    minimum = f32_from_f16(load_bytes<2>(scales_of<F>(row, i) + F::kMinimumAt + group_of<F>(i) * 2));
  return level * scale + minimum;
}

// The residual of value i, in the domain of its projection.
template <class F>
KV_DEVICE float load_residual(const StoredRow& row, int i) {
  const float norm = f32_from_f16(load_bytes<2>(scales_of<F>(row, i) + F::kResidualNormAt + group_of<F>(i) * 2));
  const float size = norm * F::kResidualFactor * (F::kIsRelative ? load_scale<F>(row, i) : 1.f);
  return F::ResidualSigns::load(codes_of<F>(row, i), i % F::kBlock) ? size : -size;
}

// Loads the stored values of a row, by one warp: value i in lane i % 32, register i / 32.
template <class F, int kPerLane>
KV_DEVICE void load_row(const StoredRow& row, float (&x)[kPerLane]) {
  static_assert(kPerLane == per_lane(F::kStored), "a row of another length");
  float length[kPerLane];
  if constexpr (F::kRenormalises) {
    for (int e = 0; e < kPerLane; ++e) {
      length[e] = load_level<F>(row, e * 32 + lane());
      length[e] *= length[e];
    }
    sum_over_groups<F::kBlock>(length);
  }
  KV_UNROLL
  for (int e = 0; e < kPerLane; ++e) {
    const bool exists = F::kStored % 32 == 0 || e * 32 + lane() < F::kStored;
    x[e] = exists ? load_value<F>(row, e * 32 + lane(), F::kRenormalises ? sqrt_rn(length[e]) : 1.f) : 0.f;
  }
}

// Loads the residuals of a row, likewise.
template <class F, int kPerLane>
KV_DEVICE void load_residuals(const StoredRow& row, float (&x)[kPerLane]) {
  KV_UNROLL
  for (int e = 0; e < kPerLane; ++e) x[e] = load_residual<F>(row, e * 32 + lane());
}

}  // namespace kv
