// Stored rows, value by value: where each code and each stored number lies, and what they mean. The readable decoder;
// reference and dequantize use it (the tensor-core families read the same bytes their own way).
//
//   layout rows      a row is whole blocks, kCodeStride = kScaleStride bytes each
//   layout planar    the fields of codes form the codes row, kCodeStride bytes a block; the others the scales row
//
// The generator derives a format's struct from FormatDefaults and states what differs, besides
//   kIsPlanar, kStored (values a row), kBlock, kGroup (values that share a scale), kCodeStride, kScaleStride,
//   Codes: the first section, of formats/codes.cuh.
// SPDX-License-Identifier: MIT
#pragma once
#include "args/attention.cuh"
#include "device/simt.cuh"
#include "formats/codes.cuh"
#include "formats/groups.cuh"

namespace kv {

struct FormatDefaults {
  static constexpr bool kHasScale = false, kHasTensorScale = false, kHasMinimum = false;
  static constexpr bool kRenormalises = false;  // decoding divides by the length of the block's entries
  using Number = F16;                           // of the stored scale
  // Outliers: the channels of a mask have codes of their own; mask_word(scales, w): 32 channels, bit set: an outlier.
  static constexpr bool kHasOutliers = false, kHasStoredMask = false;
  // Residual: a sign a value, and a norm a group; it stands for sign * norm * kResidualFactor, times the scale if
  // relative.
  static constexpr bool kHasResidual = false, kIsRelative = true;
  static constexpr float kResidualFactor = 1.f;
};

// The bytes of one (sequence, head, token).
struct StoredRow {
  u8* codes;
  u8* scales;
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

// The row `by` tokens behind a row of the same head; what it is is known too.
template <class F>
KV_DEVICE StoredRow stored_row_behind(const StoredRow& row, const CacheSide& side, i64, i64, i64, int by) {
  u8* const codes = row.codes + by * side.codes_token_stride;
  if constexpr (F::kIsPlanar)
    return {codes, row.scales + by * side.scales_token_stride};
  else
    return {codes, codes};
}

// The block of value i.
template <class F>
KV_DEVICE u8* codes_of(const StoredRow& row, int i) {
  return row.codes + i64(i / F::kBlock) * F::kCodeStride;
}
template <class F>
KV_DEVICE u8* scales_of(const StoredRow& row, int i) {
  return row.scales + i64(i / F::kBlock) * F::kScaleStride;
}
// Its group's place among those of the block.
template <class F>
KV_DEVICE int group_of(int i) {
  return i % F::kBlock / F::kGroup;
}

// A channel's section, and which of the section's codes is its own. A damaged mask may mark too many channels: they
// share the last code, so that nothing outside the block is read.
struct Place {
  bool is_outlier;
  int k;
};
template <class F>
KV_DEVICE Place place_of(const u8* scales, int channel) {
  int outliers = 0;  // below the channel
  for (int w = 0; w < channel / 32; ++w) outliers += count_bits(F::mask_word(scales, w));
  const u32 mask = F::mask_word(scales, channel / 32);
  outliers += count_bits(mask & ((1u << channel % 32) - 1));
  const bool is_outlier = mask >> channel % 32 & 1;
  const int k = is_outlier ? outliers : channel - outliers,
            last = (is_outlier ? F::Outliers::kCount : F::Codes::kCount) - 1;
  return {is_outlier, k < last ? k : last};
}

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

template <class F>
KV_DEVICE float load_scale(const StoredRow& row, int i) {
  if constexpr (F::kHasScale) {
    constexpr int kBytes = F::Number::kBytes;
    return F::Number::decode(load_bytes<kBytes>(scales_of<F>(row, i) + F::kScaleAt + group_of<F>(i) * kBytes));
  } else {
    return 1.f;
  }
}

// shrink: by what the scale is to be divided first (1, or the length of the block's entries).
template <class F>
KV_DEVICE float load_value(const StoredRow& row, int i, float shrink = 1.f) {
  const float level = load_level<F>(row, i);
  float scale = load_scale<F>(row, i), minimum = 0.f;
  if constexpr (F::kRenormalises) scale = shrink > 0.f ? scale / shrink : scale;
  if constexpr (F::kHasMinimum)
    minimum = f32_from_f16(load_bytes<2>(scales_of<F>(row, i) + F::kMinimumAt + group_of<F>(i) * 2));
  return level * scale + minimum;
}

// What the residual of value i stands for, in the domain of its projection.
template <class F>
KV_DEVICE float load_residual(const StoredRow& row, int i) {
  const float norm = f32_from_f16(load_bytes<2>(scales_of<F>(row, i) + F::kResidualNormAt + group_of<F>(i) * 2));
  const float size = norm * F::kResidualFactor * (F::kIsRelative ? load_scale<F>(row, i) : 1.f);
  return F::ResidualSigns::load(codes_of<F>(row, i), i % F::kBlock) ? size : -size;
}

// A row's stored values by one warp: value i in lane i % 32, register i / 32.
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

// ... and its residuals.
template <class F, int kPerLane>
KV_DEVICE void load_residuals(const StoredRow& row, float (&x)[kPerLane]) {
  KV_UNROLL
  for (int e = 0; e < kPerLane; ++e) x[e] = load_residual<F>(row, e * 32 + lane());
}

}  // namespace kv
