// V whose stored scales and minima are halves and multiply values (q4_1, q5_1): a value, code x scale + minimum, may
// leave fp16's range. It does not while scales and minima are at most V::kMostScales, as nearly always. From a tile on
// where one is larger, all are divided by a power of two where they are staged:
//
//   O = 2^log2 x sum P (code x scale / 2^log2 + minimum / 2^log2)
//
// So other tiles cost a look at their scales alone. log2 begins with 0, and is raised with the largest scale.
// SPDX-License-Identifier: MIT
#pragma once
#include "kernels/decode/rare/scales_of_tile.cuh"
#include "kernels/decode/rare/staged_stores.cuh"

namespace kv {

template <class Plan>
struct ZeroScales;

template <class Plan>
requires IsWide<typename Plan::V>
struct ValueScales<Plan> {
  using V = typename Plan::V;
  static constexpr u32 kTopBits = 0x80008000u;
  int log2 = 0;
  u32 limit = kTopBits | V::kMostScales;  // as in values.cuh; zeros alone fit when log2 > 0

  // Looks for the largest of the lane's scales, and of its minima, of kSubtiles x 16 tokens.
  KV_DEVICE void load(SharedAddress stage, int first, const u32 (&misalignment)[Plan::kSubtiles][4], Table) {
    place(stage, first, misalignment);
    largest_ = largest_of<false, 1>(stage, first, misalignment, 0);
  }
  KV_DEVICE bool fit() const { return fit(largest_); }
  KV_DEVICE bool fit(u32 both) const { return (~(limit - both) & kTopBits) == 0; }
  KV_DEVICE void raise(Outputs<Plan>& o) {
    if (!any(!fit())) return;  // a warp's first tile has no reference maximum that fits, but scales that do
    raise(o, largest_of_warp(finite<1>(largest_, stage_, first_, misalignment_, 0)));
    divide(stage_, first_, misalignment_);
  }
  // needed: the least log2, as finite() has it.
  KV_DEVICE void raise(Outputs<Plan>& o, u32 needed) {
    const int raised = int(needed) < log2 ? log2 : int(needed);
    const float rescale_factor = exp2_fast(float(log2 - raised));
    log2 = raised;
    if (log2 > 0) limit = kTopBits;
    constexpr int kSums = Plan::kValueDim / 4 / Plan::kValueShare;  // sums of one block of columns
    KV_UNROLL
    for (int i = 0; i < Plan::kOwnBlocks * kSums; ++i) o[i / kSums][i / 4 % (kSums / 4)][i % 4] *= rescale_factor;
  }

  // Says which tokens are divided.
  KV_DEVICE void place(SharedAddress stage, int first, const u32 (&misalignment)[Plan::kSubtiles][4]) {
    stage_ = stage, first_ = first;
    KV_UNROLL
    for (int i = 0; i < Plan::kSubtiles * 4; ++i) misalignment_[i / 4][i % 4] = misalignment[i / 4][i % 4];
  }
  template <class S>
  KV_DEVICE void of_values(SharedAddress a, SharedAddress b, int index, u32& scales, u32& minima) const {
    const u32 of_a = S::scale_and_minimum(a, index), of_b = S::scale_and_minimum(b, index);
    scales = permute(of_a, of_b, 0x5410), minima = V::kHasMinima ? permute(of_a, of_b, 0x7632) : 0;
  }
  KV_DEVICE static auto of_all() { return ZeroScales<Plan>{}; }

  // The largest scale, and in the upper half the largest minimum, among a share of those of the warp's tokens:
  // magnitudes. Without minima both halves are scales. One that is no number is above all others.
  template <bool, int>
  KV_DEVICE static u32 largest_of(SharedAddress stage, int first, const u32 (&misalignment)[Plan::kSubtiles][4], int) {
    constexpr int kTokens = 16 * Plan::kSubtiles;
    if constexpr (has_words_of_scales<V, kTokens>()) return largest_word<V, kTokens>(stage, first);
    u32 both = 0;
    for_each(typename V::Sections{}, [&](auto section) {
      using S = decltype(section);
      for_each_scale<Plan, S, false>(stage, first, misalignment, [&](SharedAddress at, int i) {
        both = larger_f16x2(both, S::scale_and_minimum(at, i));
      });
    });
    return both;
  }
  // The least log2 for the lane's scales and minima that are finite numbers.
  template <int>
  KV_DEVICE static u32 finite(u32, SharedAddress stage, int first, const u32 (&misalignment)[Plan::kSubtiles][4], int) {
    u32 needed = 0;
    for_each(typename V::Sections{}, [&](auto section) {
      using S = decltype(section);
      for_each_scale<Plan, S, false>(stage, first, misalignment, [&](SharedAddress at, int i) {
        const u32 both = S::scale_and_minimum(at, i);
        needed = larger(needed, larger(steps_above(both & 0x7fffu, V::kMostScales & 0xffffu),
                                       steps_above(both >> 16 & 0x7fffu, V::kMostScales >> 16)));
      });
    });
    return needed;
  }
  KV_DEVICE void divide(SharedAddress stage, int first, const u32 (&misalignment)[Plan::kSubtiles][4]) const {
    if (!warp_uniform(log2 > 0)) return;
    const u32 power = half_power(-log2) * 0x10001u;
    for_each(typename V::Sections{}, [&](auto section) {
      using S = decltype(section);
      for_each_scale<Plan, S, true>(stage, first, misalignment, [&](SharedAddress at, int i) {
        S::store_scale_and_minimum(at, i, mul_f16x2(S::scale_and_minimum(at, i), power));
      });
    });
    end_stores(StagedValues<Plan>{});
  }

 private:
  u32 largest_;
  SharedAddress stage_;
  int first_;
  u32 misalignment_[Plan::kSubtiles][4];
};

// Takes away what is finite: codes times these scales are no numbers only where a scale or a minimum is none.
template <class Plan>
struct ZeroScales : ValueScales<Plan> {
  template <class S>
  KV_DEVICE void of_values(SharedAddress a, SharedAddress b, int index, u32& scales, u32& minima) const {
    ValueScales<Plan>::template of_values<S>(a, b, index, scales, minima);
    scales = mul_f16x2(scales, 0), minima = mul_f16x2(minima, 0);
  }
};

}  // namespace kv
