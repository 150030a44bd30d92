// Rows that leave the range of halves, in one pass (exponents.cuh). The bound of a row follows from its scales
// and the largest code, or from its elements. A warp converts its tokens without exponents, and again if one of them
// needs one. It writes the exponents of rows that leave the range, and those that stood there before.
// SPDX-License-Identifier: MIT
#pragma once
#include "kernels/prefill/exponents.cuh"

namespace kv {

// fits: whether a lane's part of a row is halves as it is. fit: reads a row again relative to a power of two, if its
// numbers need one, and returns the exponent, which the lanes of a row have in common. reads: as load() has made them.
template <class Range, class Side, class S>
struct RowFit {
  using Reads = RowReads<S, false>;
  static constexpr int kReads = S::kGroups * S::kReads;
  static constexpr bool kHasScales = S::kScalesValues || S::kScalesGroups || S::kRenormalises;

  // The largest of the lane's scales as halves, of its bfloats, or of its float32 scale's upper half.
  KV_DEVICE static u32 most(const Reads& reads) {
    if constexpr (!kHasScales) {
      u32 pairs = 0;
      KV_UNROLL
      for (int i = 0; i < kReads; ++i) {
        KV_UNROLL
        for (int w = 0; w < S::kReadWords; ++w) pairs = larger_f16x2(pairs, reads.codes[i][w]);
      }
      return larger(pairs >> 16, pairs & 0xffffu);
    } else if constexpr (S::kRenormalises) {
      return reads.scale[0] >> 16 & 0x7fffu;
    } else {
      u32 scale = 0;
      KV_UNROLL
      for (int i = 0; i < kReads; ++i) scale = larger(scale, reads.scale[i] & 0x7fffu);
      return scale;
    }
  }
  KV_DEVICE static bool fits(const Reads& reads) {
    const u32 of_row = most(reads);
    bool fits = of_row - Range::kLeast <= Range::kMost - Range::kLeast;
    if constexpr (S::kScalesValues) {
      KV_UNROLL
      for (int i = 0; i < kReads; ++i) fits &= (reads.minimum[i] & 0x7fffu) <= Range::kMostMinimum;
    } else if constexpr (S::kAddsMinima) {
      KV_UNROLL
      for (int i = 0; i < kReads; ++i) fits &= absolute(float_of(reads.minimum[i])) <= power_of_two(kMostExponent - 1);
    }
    return fits;
  }
  KV_DEVICE static float minimum(SharedAddress scales, int at) {
    if constexpr (S::kScalesValues)
      return f32_from_f16(S::minimum_half(scales, at));
    else if constexpr (S::kAddsMinima)
      return S::minimum(scales, at);
    return 0.f;
  }
  // All lanes of the warp take part.
  KV_DEVICE static int fit(Reads& reads, SharedAddress stage, int row, u32 misalignment, int c) {
    const float kInfinity = float_of(0x7f800000u);
    const auto place = [&](int i) { return scales_of<Side, S>(stage, misalignment, row, i / S::kReads, c); };
    const auto index = [&](int i) { return S::kScalesValues ? scale_index<S>(i % S::kReads, c) : 0; };
    float bound = 0.f, scale = 1.f;
    if constexpr (kHasScales) {
      if constexpr (Range::kRoundsScales) scale = 0.f;
      KV_UNROLL
      for (int i = 0; i < kReads; ++i) {
        const float of_read =
            absolute(S::scale(place(i), index(i))) * Range::kLargestCode + absolute(minimum(place(i), index(i)));
        if (of_read < kInfinity) bound = larger(bound, of_read);
        if constexpr (Range::kRoundsScales) scale = larger(scale, absolute(S::scale(place(i), index(i))));
      }
    } else {
      bound = float_of(most(reads) << 16);
      if (!(bound < kInfinity)) bound = 0.f;
    }
    KV_UNROLL
    for (int mask = 1; mask < 4; mask <<= 1) {
      bound = larger(bound, shfl_xor(bound, mask));
      if constexpr (kHasScales && Range::kRoundsScales) scale = larger(scale, shfl_xor(scale, mask));
    }
    const int exponent = exponent_of_row(bound, scale);
    const float factor = power_of_two(-exponent);
    if (exponent == 0) return 0;
    KV_UNROLL
    for (int i = 0; i < kReads; ++i) {
      if constexpr (!kHasScales) {
        KV_UNROLL
        for (int w = 0; w < S::kReadWords; ++w) {
          const u32 pair = reads.codes[i][w];
          reads.codes[i][w] = pack_bf16x2(f32_from_bf16(pair & 0xffff) * factor, f32_from_bf16(pair >> 16) * factor);
        }
      } else {
        const float scale = S::scale(place(i), index(i)) * factor;
        reads.scale[i] = S::kRenormalises ? bits_of(scale) : u32(f16_from_f32(scale));
        if constexpr (S::kScalesValues)
          reads.minimum[i] = f16_from_f32(minimum(place(i), index(i)) * factor);
        else if constexpr (S::kAddsMinima)
          reads.minimum[i] = bits_of(minimum(place(i), index(i)) * factor);
      }
    }
    return exponent;
  }
};

template <class Plan, bool kIsV>
requires(HasExponents<Plan, kIsV>) struct FittedRows<Plan, kIsV> {
  static constexpr bool kMayLeave = true;
  template <class Side, class S>
  KV_DEVICE static bool fits(const RowReads<S, false>& reads) {
    return RowFit<typename Plan::template Range<kIsV>, Side, S>::fits(reads);
  }
  // Reads a row that the lane has loaded again, relative to its power of two, and stores the exponent. Returns whether
  // the row has one.
  template <class Side, class S>
  KV_DEVICE static bool take(RowReads<S, false>& reads, SharedAddress from, int row, u32 misalignment, int n,
                             int token) {
    const int c = lane() & 3,
              exponent = RowFit<typename Plan::template Range<kIsV>, Side, S>::fit(reads, from, row, misalignment, c);
    if (c == 0) store_shared_u8(TokenExponents<Plan, kIsV>::stage(n) + token, u32(exponent + kExponentBias));
    return exponent != 0;
  }
};

}  // namespace kv
