// Walks over the stored scales of a warp's tokens, for scales that may lead beyond fp16 (wide_values.cuh,
// half_scales.cuh, half_key_scales.cuh).
// SPDX-License-Identifier: MIT
#pragma once
#include "kernels/decode/values.cuh"

namespace kv {

constexpr u32 kInfinity = 0x7f800000u;  // bits of a float

// By how many powers of two a finite half is above `most`, a power of two; rounded up.
KV_DEVICE u32 steps_above(u32 half, u32 most) {
  return half > most && half < 0x7c00u ? (half + 0x3ffu - most) >> 10 : 0;
}

// Scales of a stored block; 1 if they are of groups.
template <class S>
constexpr int scales_of_block() {
  return S::kScaleGroup > 0 ? S::kLanesPerBlock * S::kReads * S::kReadCodes / S::kScaleGroup : 1;
}
template <class S>
constexpr int scales_of_row() {
  return S::kGroups * S::kBlocks * scales_of_block<S>();
}

// The larger magnitudes of the words of scales of kTokens staged tokens, in layout planar: pairs of halves.
template <class Side, int kTokens>
KV_DEVICE u32 largest_word(SharedAddress stage, int first) {
  constexpr int kBytes = kTokens * Side::kScalePitch / 32;  // of a lane
  const SharedAddress at = stage + Side::kScalesAt + first * Side::kScalePitch + lane() * kBytes;
  u32 w[kBytes / 4], both = 0;
  KV_UNROLL
  for (int i = 0; i < kBytes / 4;) {
    if constexpr (kBytes % 16 == 0 && Side::kScalesAt % 16 == 0)
      load_staged_u128(w + i, at + 4 * i), i += 4;
    else if constexpr (kBytes % 8 == 0 && Side::kScalesAt % 8 == 0)
      load_staged_u64(w + i, at + 4 * i), i += 2;
    else
      w[i] = load_staged_u32(at + 4 * i), i += 1;
  }
  KV_UNROLL
  for (const u32 word : w) both = larger_f16x2(both, word);
  return both;
}
// Whether largest_word() sees all scales of a side.
template <class Side, int kTokens>
constexpr bool has_words_of_scales() {
  return Side::kScalesAreWords && kTokens * Side::kScalePitch % 128 == 0 && Side::kScalesAt % 4 == 0;
}

// Calls take(scales of a block, number of the scale) for the lane's share of the scales of kSubtiles x 16 tokens. The
// eight lanes that have the same tokens share their scales. kOnce: no scale is taken twice; else lanes without one take
// that of another lane.
template <class Plan, class S, bool kOnce, class Take>
KV_DEVICE void for_each_scale(SharedAddress stage, int first, const u32 (&misalignment)[Plan::kSubtiles][4],
                              const Take& take) {
  using V = typename Plan::V;
  constexpr int kOfBlock = scales_of_block<S>(), kScales = scales_of_row<S>(),
                kTokens = 4 * Plan::kSubtiles;  // that eight lanes have in common
  const int g = lane() >> 2, c = lane() & 3;
  const auto scales_at = [&](int t, int scale) {
    const int token = first + t / 4 * 16 + 2 * c + t % 2 + t % 4 / 2 * 8;
    return stage + V::kScalesAt + token * V::kScalePitch + scale / kOfBlock * S::kScaleStride;
  };
  if constexpr (V::kIsPlanar) {
    KV_UNROLL
    for (int i = 0; i < kTokens * kScales; i += 8) {
      const int at = (i + g) % (kTokens * kScales);
      if (!kOnce || i + g < kTokens * kScales) take(scales_at(at / kScales, at % kScales), at % kOfBlock);
    }
  } else {
    KV_UNROLL
    for (int i = 0; i < kScales; i += 8) {
      const int scale = (i + g) % kScales;
      KV_UNROLL
      for (int t = 0; t < kTokens; ++t)
        if (!kOnce || i + g < kScales) take(scales_at(t, scale) + misalignment[t / 4][t % 4], scale % kOfBlock);
    }
  }
}

}  // namespace kv
