// Values beyond fp16's range: elements of bf16 and f32, and values whose scales or minima take them there. Powers of
// two are taken out before they become fp16, as ValueScales of kernels/decode/values.cuh does for scales:
//
//   O = 2^log2 x sum P (V / 2^log2)               scales of values, minima and elements, each divided in fp32
//   O = 2^log2 x sum (P x scale / 2^log2) V       scales that multiply probabilities
//
// 2^log2 follows the largest number that the warp, or its team, has met, and is raised with it. So a value counts to
// 2^-39 of the largest one. Sums of probabilities times V are fp32: the range ends at 2^96.
// SPDX-License-Identifier: MIT
#pragma once
#include "kernels/decode/rare/scales_of_tile.cuh"

namespace kv {

// What leaves fp16's range: a section's kRange.
enum class Range {
  kGroupScales,  // scales that multiply probabilities
  kValueScales,  // scales that multiply values of at most kLargest, and minima
  kElements      // bf16 or f32
};

constexpr float kMostValue = 0x1p15f;  // of a value as a half; scales of probabilities become 1 at most

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
  static constexpr int kLeast = -126, kMost = 126;
  int log2 = kLeast;
  float inverse = 0x1p126f;  // 2^-log2

  // Looks for the largest of the lane's numbers of kSubtiles x 16 tokens.
  KV_DEVICE void load(SharedAddress stage, int first, const u32 (&misalignment)[Plan::kSubtiles][4], Table) {
    place(stage, first, misalignment);
    largest_ = largest_of<false, 1>(stage, first, misalignment, TeamWarp<Plan>::value_slice());
  }
  // Not if a scale or an element is no number, either.
  KV_DEVICE bool fit() const { return fit(largest_); }
  KV_DEVICE bool fit(u32 most) const { return most <= u32(log2 + 127) << 23; }
  KV_DEVICE void raise(Outputs<Plan>& o) {
    raise(o, largest_of_warp(finite<1>(largest_, stage_, first_, misalignment_, TeamWarp<Plan>::value_slice())));
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
    if constexpr (S::kRange == Range::kValueScales) {
      scales = f16_from_f32(S::scale(a, index) * inverse) | f16_from_f32(S::scale(b, index) * inverse) << 16;
      minima = f16_from_f32(S::minimum(a, index) * inverse) | f16_from_f32(S::minimum(b, index) * inverse) << 16;
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
  // The same without numbers that are infinite or none, if `most` is such a number.
  template <int kSlices>
  KV_DEVICE static u32 finite(u32 most, SharedAddress stage, int first, const u32 (&misalignment)[Plan::kSubtiles][4],
                              int slice) {
    return any(most >= kInfinity) ? largest_of<true, kSlices>(stage, first, misalignment, slice) : most;
  }
  KV_DEVICE void divide(SharedAddress, int, const u32 (&)[Plan::kSubtiles][4]) const {}  // numbers that are read are

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
  template <class S, bool kSkipsNoNumbers>
  KV_DEVICE static u32 largest_scale(SharedAddress stage, int first, const u32 (&misalignment)[Plan::kSubtiles][4]) {
    constexpr bool kIsOfValues = S::kRange == Range::kValueScales;
    u32 most = 0;
    for_each_scale<Plan, S, false>(stage, first, misalignment, [&](SharedAddress at, [[maybe_unused]] int i) {
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
