// Wide values (wide_values.cuh, half_scales.cuh) of a warp team: each warp looks at its own tile, and the team has
// one 2^log2.
// SPDX-License-Identifier: MIT
#pragma once
#include "kernels/decode/warp_team.cuh"
#include "kernels/decode/rare/scales_of_tile.cuh"

namespace kv {

template <class Plan>
requires IsWide<typename Plan::V>
struct TokenScales<Plan> {
  u32 most;              // the lane's largest, as ValueScales has found it
  SharedAddress staged;  // V of the tile
  u32 misalignment[Plan::kSubtiles][4];
  float scales[Plan::kSubtiles][2];  // of the lane's tokens g and g + 8, if they multiply its probabilities

  KV_DEVICE void load(SharedAddress stage, const u8* first_row, i64 stride) {
    using V = typename Plan::V;
    staged = stage;
    value_misalignments<V>(misalignment, first_row, stride);
    most = ValueScales<Plan>::template largest_of<false, Plan::kValueShare>(stage, 0, misalignment, 0);
    if constexpr (Plan::kScalesProbabilities) {
      const int g = lane() >> 2;
      u32 of_keys[1][2];
      key_misalignments<V>(of_keys, first_row, stride);
      for_each(typename V::Sections{}, [&](auto section) {
        using S = decltype(section);
        KV_UNROLL
        for (int i = 0; i < Plan::kSubtiles * 2; ++i)
          scales[i / 2][i % 2] =
              group_scale<S>(scales_of<V, S>(stage, of_keys[0][i % 2], i / 2 * 16 + i % 2 * 8 + g, 0, 0));
      });
    }
  }
  // As in ValueScales (values.cuh).
  KV_DEVICE void keep(int sub, const u32 (&tokens)[2]) {
    most = 0;
    KV_UNROLL
    for (int i = 0; i < Plan::kSubtiles * 2; ++i) {
      float& scale = scales[i / 2][i % 2];
      if (i / 2 == sub && !(tokens[i % 2] >> (lane() & ~3) & 0xfu)) scale = 0.f;
      const u32 bits = bits_of(scale) & 0x7fffffffu;
      most = bits < kInfinity ? larger(most, bits) : most;
    }
  }
  KV_DEVICE bool are_numbers() const {
    u32 largest = 0;
    KV_UNROLL
    for (int i = 0; i < Plan::kSubtiles * 2; ++i)
      largest = larger(largest, bits_of(scales[i / 2][i % 2]) & 0x7fffffffu);
    return largest < kInfinity;
  }
  KV_DEVICE void no_numbers(int sub, u32 (&tokens)[2]) const {
    KV_UNROLL
    for (int half = 0; half < 2; ++half) tokens[half] = ballot((bits_of(scales[sub][half]) & kInfinity) == kInfinity);
  }
  KV_DEVICE bool fit(const ValueScales<Plan>& reference) const { return reference.fit(most); }
  // Has a team barrier.
  KV_DEVICE void raise(Sums<Plan>& sums) const {
    const u32 finite = ValueScales<Plan>::template finite<Plan::kValueShare>(most, staged, 0, misalignment, 0);
    sums.value_scales.raise(sums.o, largest_of_team<Plan>(finite));
    sums.value_scales.divide(staged, 0, misalignment);
  }
  // Multiplies probabilities by the scales.
  KV_DEVICE void apply(u32 (&p)[Plan::kSubtiles][Plan::kColumnBlocks][2], const ValueScales<Plan>& reference) const {
    KV_UNROLL
    for (int i = 0; i < Plan::kSubtiles * 2; ++i) {
      const u32 relative = f16_from_f32(scales[i / 2][i % 2] * reference.inverse) * 0x10001u;
      KV_UNROLL
      for (int n = 0; n < Plan::kColumnBlocks; ++n) p[i / 2][n][i % 2] = mul_f16x2(p[i / 2][n][i % 2], relative);
    }
  }
};

}  // namespace kv
