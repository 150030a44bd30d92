// Mask: a half for each (query row, token) is added to the score. If kHasSlopes, the half is multiplied by the slope of
// the query head first, as ggml has ALiBi. Minus infinity hides the token whatever the slope and the score are: the
// score of a row of K that nobody wrote may be NaN.
// SPDX-License-Identifier: MIT
#pragma once
#include "features/feature_list.cuh"

namespace kv {

template <bool kHasSlopes>
struct Mask : FeatureDefaults<Mask<kHasSlopes>> {
  static constexpr bool kLoads = true, kMayHide = true, kHidesLate = true;
  static constexpr u32 kMinusInfinity = 0xfc00;
  struct Row {
    const u16* mask;  // the half of token 0
    float slope;      // of the query head, times log2(e); log2(e) without slopes
  };
  struct Loaded {
    u16 half;  // the mask's entry
  };
  KV_DEVICE static Row row(const FeatureArgs& args, const QueryRow& at) {
    return {args.mask + at.sequence * args.mask_sequence_stride + at.head * args.mask_head_stride +
                at.query * args.mask_query_stride,
            kHasSlopes ? args.slopes[at.head] * kLog2E : kLog2E};
  }
  KV_DEVICE static Loaded load(const Row& row, int token) { return {row.mask[token]}; }
  KV_DEVICE static bool hides(const Row&, const Loaded& loaded) { return loaded.half == kMinusInfinity; }
  KV_DEVICE static float apply_first(float score, const Row& row, const Loaded& loaded) {
    return score + f32_from_f16(loaded.half) * (kHasSlopes ? row.slope : kLog2E);
  }
  KV_DEVICE static float apply(float score, const Row& row, const Loaded& loaded, int) {
    return hides(row, loaded) ? minus_infinity() : apply_first(score, row, loaded);
  }
};

}  // namespace kv
