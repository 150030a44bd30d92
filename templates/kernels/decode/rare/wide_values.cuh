// Values beyond fp16's range: elements of bf16 and f32, and values whose scales or minima take them there. Powers of
// two are taken out before they become fp16, as ValueScales of kernels/decode/values.cuh does for scales:
//
//   O = 2^log2 x sum P (V / 2^log2)               scales of values, minima and elements, each divided in fp32
//   O = 2^log2 x sum (P x scale / 2^log2) V       scales that multiply probabilities
//
// Stored halves that multiply values are divided in fp16, and only where values are beyond 2^15: log2 begins with 0.
//
// 2^log2 follows the largest number that the warp, or its team, has met, and is raised with it. So a value counts to
// 2^-39 of the largest one. Sums of probabilities times V are fp32: the range ends at 2^96.
// SPDX-License-Identifier: MIT
#pragma once
#include "kernels/decode/values.cuh"

namespace kv {

// What leaves fp16's range: a section's kRange.
enum class Range {
  kGroupScales,  // scales that multiply probabilities
  kValueScales,  // scales that multiply values of at most kLargest, and minima
  kElements      // bf16 or f32
};

constexpr u32 kInfinity = 0x7f800000u;  // bits of a float
constexpr float kMostValue = 0x1p15f;   // of a value as a half; scales of probabilities become 1 at most

// Columns of elements, times `inverse`.
template <class Side>
struct WideBf16Read {
  static constexpr int kPerWord = 2;
  KV_DEVICE static u32 halves(u32 lo, u32 hi) {
    return pack_f16x2(f32_from_bf16(lo & 0xffffu), f32_from_bf16(hi & 0xffffu));
  }
  KV_DEVICE static void column(const u32 (&w0)[Side::kReadWords], const u32 (&w1)[Side::kReadWords],
                               u32 (&h)[Side::kReadCodes], float inverse) {
    KV_UNROLL
    for (int i = 0; i < Side::kReadWords; ++i) {
      const u32 power = bits_of(inverse) >> 16 | bits_of(inverse), a = mul_bf16x2(w0[i], power),  // exact
          b = mul_bf16x2(w1[i], power);
      h[2 * i] = halves(a, b);
      h[2 * i + 1] = halves(a >> 16, b >> 16);
    }
  }
};
template <class Side>
struct WideF32Read {
  static constexpr int kPerWord = 1;
  KV_DEVICE static void column(const u32 (&w0)[Side::kReadWords], const u32 (&w1)[Side::kReadWords],
                               u32 (&h)[Side::kReadCodes], float inverse) {
    KV_UNROLL
    for (int i = 0; i < Side::kReadWords; ++i) h[i] = pack_f16x2(float_of(w0[i]) * inverse, float_of(w1[i]) * inverse);
  }
};

// Whether values have minima.
template <class S>
constexpr bool kHasMinima = S::kRange == Range::kValueScales && !requires {
  S::kHasWideScales;
};

template <class Plan>
requires IsWide<typename Plan::V>
struct ValueScales<Plan> {
  using V = typename Plan::V;
  static constexpr bool kHasHalfScales = requires { V::kHasHalfScales; };
  static constexpr int kLeast = kHasHalfScales ? 0 : -126, kMost = 126;
  int log2 = kLeast;
  float inverse = kHasHalfScales ? 1.f : 0x1p126f;  // 2^-log2

  // Looks for the largest of the lane's numbers of kSubtiles x 16 tokens.
  KV_DEVICE void load(SharedAddress stage, int first, const u32 (&misalignment)[Plan::kSubtiles][4], Table) {
    place(stage, first, misalignment);
    largest_ = largest_of<false, 1>(stage, first, misalignment, TeamWarp<Plan>::value_slice());
  }
  // Not if a scale or an element is no number, either.
  KV_DEVICE bool fit() const { return fit(largest_); }
  KV_DEVICE bool fit(u32 most) const { return most <= u32(log2 + 127) << 23; }
  KV_DEVICE void raise(Outputs<Plan>& o) {
    u32 most = largest_;
    if (any(most >= kInfinity))
      most = largest_of<true, 1>(stage_, first_, misalignment_, TeamWarp<Plan>::value_slice());
    raise(o, largest_of_warp(most));
  }
  KV_DEVICE void raise(Outputs<Plan>& o, u32 most) {
    const int needed = int(most >> 23) - 126, raised = needed < log2 ? log2 : needed > kMost ? kMost : needed;
    const float rescale_factor = exp2_fast(float(log2 - raised));
    log2 = raised, inverse = float_of(u32(127 - log2) << 23);
    constexpr int kSums = Plan::kValueDim / 4 / Plan::kValueShare;  // sums of one block of columns
    KV_UNROLL
    for (int i = 0; i < Plan::kOwnBlocks * kSums; ++i) o[i / kSums][i / 4 % (kSums / 4)][i % 4] *= rescale_factor;
  }

  // Says which tokens relative() is of.
  KV_DEVICE void place(SharedAddress stage, int first, const u32 (&misalignment)[Plan::kSubtiles][4]) {
    stage_ = stage, first_ = first;
    KV_UNROLL
    for (int i = 0; i < Plan::kSubtiles * 4; ++i) misalignment_[i / 4][i % 4] = misalignment[i / 4][i % 4];
  }
  template <class S>
  KV_DEVICE u32 relative(int group, int sub, int high) const {
    if constexpr (S::kRange == Range::kElements) return 0x3c003c00u;  // 1: the values themselves are divided
    float scale[2];
    KV_UNROLL
    for (int t = 0; t < 2; ++t)
      scale[t] = inverse * group_scale<S>(scales_of<V, S>(stage_, misalignment_[sub][2 * high + t],
                                                          first_ + sub * 16 + 2 * (lane() & 3) + 8 * high + t, group,
                                                          TeamWarp<Plan>::value_slice() * 8));
    return pack_f16x2(scale[0], scale[1]);
  }
  template <class S>
  KV_DEVICE void of_values(SharedAddress a, SharedAddress b, int index, u32& scales, u32& minima) const {
    if constexpr (kHasHalfScales) {
      const u32 of_a = S::scale_and_minimum(a, index), of_b = S::scale_and_minimum(b, index),
                power = pack_f16x2(inverse, inverse);
      scales = mul_f16x2(permute(of_a, of_b, 0x5410), power), minima = mul_f16x2(permute(of_a, of_b, 0x7632), power);
    } else if constexpr (S::kRange == Range::kValueScales) {
      scales = pack_f16x2(S::scale(a, index) * inverse, S::scale(b, index) * inverse);
      minima = kHasMinima<S> ? pack_f16x2(S::minimum(a, index) * inverse, S::minimum(b, index) * inverse) : 0;
    } else {
      scales_of_values<S>(a, b, index, scales, minima);
    }
  }
  KV_DEVICE static ValueScales of_all() {
    ValueScales all;
    all.log2 = kMost, all.inverse = 0x1p-126f;
    return all;
  }

  // The largest number among those of the lane's tokens, in the units of 2^log2, as the bits of a float. A number that
  // is infinite or none is larger than all others, or is skipped. kSlices: of V's dimensions, from `slice` on. The
  // eight lanes that have the same tokens share scales, and have elements as they multiply them.
  template <bool kSkipsNoNumbers, int kSlices>
  KV_DEVICE static u32 largest_of(SharedAddress stage, int first, const u32 (&misalignment)[Plan::kSubtiles][4],
                                  int slice) {
    u32 most = 0;
    for_each(typename V::Sections{}, [&](auto section) {
      using S = decltype(section);
      u32 of_section;
      if constexpr (S::kRange == Range::kElements)
        of_section = largest_element<S, kSkipsNoNumbers, kSlices>(stage, first, misalignment, slice);
      else
        of_section = largest_scale<S, kSkipsNoNumbers>(stage, first, misalignment);
      most = larger(most, of_section);
    });
    return most;
  }

 private:
  u32 largest_;
  SharedAddress stage_;
  int first_;
  u32 misalignment_[Plan::kSubtiles][4];

  template <bool kSkipsNoNumbers>
  KV_DEVICE static u32 larger_magnitude(u32 most, float x) {
    const u32 bits = bits_of(x) & 0x7fffffffu;
    return kSkipsNoNumbers && bits >= kInfinity ? most : larger(most, bits);
  }
  // Calls take(scales of a block, number of the scale) for the lane's share of the scales of kSubtiles x 16 tokens.
  template <class S, class Take>
  KV_DEVICE static void for_each_scale(SharedAddress stage, int first, const u32 (&misalignment)[Plan::kSubtiles][4],
                                       const Take& take) {
    constexpr int kOfBlock = S::kScaleGroup > 0 && S::kRange != Range::kGroupScales
                                 ? S::kLanesPerBlock * S::kReads * S::kReadCodes / S::kScaleGroup
                                 : 1,
                  kScales = S::kGroups * S::kBlocks * kOfBlock,  // of a row
        kTokens = 4 * Plan::kSubtiles;                           // that eight lanes have in common
    const int g = lane() >> 2, c = lane() & 3;
    const auto scales_at = [&](int t, int scale) {
      const int token = first + t / 4 * 16 + 2 * c + t % 2 + t % 4 / 2 * 8;
      return stage + V::kScalesAt + token * V::kScalePitch + scale / kOfBlock * S::kScaleStride;
    };
    if constexpr (V::kIsPlanar) {
      KV_UNROLL
      for (int i = 0; i < kTokens * kScales; i += 8) {
        const int at = (i + g) % (kTokens * kScales);
        take(scales_at(at / kScales, at % kScales), at % kOfBlock);
      }
    } else {
      KV_UNROLL
      for (int i = 0; i < kScales; i += 8) {
        const int scale = (i + g) % kScales;
        KV_UNROLL
        for (int t = 0; t < kTokens; ++t) take(scales_at(t, scale) + misalignment[t / 4][t % 4], scale % kOfBlock);
      }
    }
  }
  template <class S, bool kSkipsNoNumbers>
  KV_DEVICE static u32 largest_scale(SharedAddress stage, int first, const u32 (&misalignment)[Plan::kSubtiles][4]) {
    if constexpr (kHasHalfScales && !kSkipsNoNumbers) {
      u32 pair = 0;  // the largest scale and, in the upper half, the largest minimum: together a bound of values
      for_each_scale<S>(stage, first, misalignment,
                        [&](SharedAddress at, int i) { pair = larger_f16x2(pair, S::scale_and_minimum(at, i)); });
      return bits_of((f32_from_f16(pair & 0xffffu) * S::kLargest + f32_from_f16(pair >> 16)) * (1.f / kMostValue)) &
             0x7fffffffu;
    }
    constexpr bool kIsOfValues = S::kRange == Range::kValueScales;
    u32 most = 0;
    for_each_scale<S>(stage, first, misalignment, [&](SharedAddress at, [[maybe_unused]] int i) {
      if constexpr (kHasMinima<S>)
        most = larger_magnitude<kSkipsNoNumbers>(
            most, (absolute(S::scale(at, i)) * S::kLargest + absolute(S::minimum(at, i))) * (1.f / kMostValue));
      else if constexpr (kIsOfValues)
        most = larger_magnitude<kSkipsNoNumbers>(most, S::scale(at, i));
      else
        most = larger_magnitude<kSkipsNoNumbers>(most, group_scale<S>(at));
    });
    // The value of the largest scale is the largest one.
    if constexpr (kIsOfValues && !kHasMinima<S>)
      most = bits_of(float_of(most) * (S::kLargest / kMostValue)) & 0x7fffffffu;
    return most;
  }

  template <class S, bool kSkipsNoNumbers, int kSlices>
  KV_DEVICE static u32 largest_element(SharedAddress stage, int first, const u32 (&misalignment)[Plan::kSubtiles][4],
                                       int slice) {
    constexpr bool kIsF32 = S::Read::kPerWord == 1;
    const int c = lane() & 3;
    u32 most = 0;
    KV_UNROLL_BY(kSkipsNoNumbers ? 1 : 2)
    for (int i = 0; i < S::kGroups * S::kReads * kSlices; ++i) {
      KV_UNROLL
      for (int t = 0; t < 4 * Plan::kSubtiles; ++t) {
        const int row = first + t / 4 * 16 + t % 4 / 2 * 8;
        u32 w[S::kReadWords];
        load_codes<S>(stage + row * V::kPitch, (2 * c + t % 2) * V::kPitch + misalignment[t / 4][t % 4],
                      i / S::kReads % S::kGroups, i % S::kReads,
                      (lane() >> 2) + (slice + i / (S::kReads * S::kGroups)) * 8, w);
        KV_UNROLL
        for (int j = 0; j < S::kReadWords; ++j) {
          if constexpr (kSkipsNoNumbers) w[j] &= numbers<kIsF32>(w[j]);
          if constexpr (kIsF32)
            most = larger(most, w[j] & 0x7fffffffu);
          else
            most = larger_bf16x2(most, w[j]);
        }
      }
    }
    if constexpr (!kIsF32) most = larger(most << 16 & 0x7fff0000u, most & 0x7fff0000u);
    return bits_of(float_of(most) * (1.f / kMostValue)) & 0x7fffffffu;
  }
  // A mask of the word, or of the halves of a word, if it is a finite number in f32, or bf16.
  template <bool kIsF32>
  KV_DEVICE static u32 numbers(u32 w) {
    const u32 high = (w & kInfinity) != kInfinity ? 0xffff0000u : 0u;
    if constexpr (kIsF32) return high | high >> 16;
    return high | ((w & 0x7f80u) != 0x7f80u ? 0xffffu : 0u);
  }
};

}  // namespace kv
