// Staged scales that are swizzled 4 x 4 in pages (formats/rare/swizzled_scales.cuh). A whole tile is staged as it is,
// and a scale is read from its place in the piece of four tokens. In a tile with an end, scales are copied one by one,
// so that tokens behind the end have scales of 0.
// SPDX-License-Identifier: MIT
#pragma once
#include "kernels/decode/paged.cuh"

namespace kv {

template <class Side>
concept HasSwizzledScales = Side::kHasSwizzledScales;

// The place of a group's scale, from that of its token's row in token order. kScales: scales of a token.
template <int kScales>
KV_DEVICE SharedAddress swizzled_scale(SharedAddress row, int group) {
  const SharedAddress offset = row % (4 * kScales);
  return row - offset + offset / kScales + group / (kScales / 4) * kScales + group % (kScales / 4) * 4;
}

// In place of that of kernels/decode/hidden_values.cuh.
template <HasSwizzledScales Side>
KV_DEVICE SharedAddress scale_byte(Side, SharedAddress stage, int row, int at) {
  return swizzled_scale<Side::kScaleRowBytes>(stage + Side::kScalesAt + row * Side::kScalePitch, at);
}

template <HasSwizzledScales Side, int kRows, bool kIsWhole>
KV_DEVICE void stage_page(SharedAddress to, SharedAddress scales_to, const CacheSide& side, const u8* codes,
                          const u8* scales, int valid_rows) {
  constexpr int kScales = Side::kScaleRowBytes, kAll = kRows * kScales;
  static_assert(kRows % 4 == 0 && kAll % 16 == 0 && Side::kScalesAt % (4 * kScales) == 0);
  stage_strided<kRows, Side::kRowBytes, Side::kPitch, Side::kSwizzle, kIsWhole>(to, codes, side.codes_token_stride,
                                                                                valid_rows);
  if constexpr (kIsWhole) {
    stage_dense<kAll, 0, true>(scales_to, scales + lane() * 16, kAll);
  } else {
    for (int at = lane(); at < kAll; at += 32) {
      const int token = at / (4 * kScales) * 4 + at % 4;
      store_shared_u8(scales_to + at, token < valid_rows ? scales[at] : u8(0));
    }
  }
}

}  // namespace kv
