// K whose stored scales are halves and multiply values (ninfer_v4_g32): a value, code x scale, may leave fp16's range.
// It does not while scales are at most K::kMostScales, as nearly always. In a tile where one is larger, the scales of
// each token are divided by a power of two where they are staged, and its scores are multiplied by it. So other tiles
// cost a look at their scales alone. A scale far below the largest of its token loses bits as a small value would.
// SPDX-License-Identifier: MIT
#pragma once
#include "kernels/decode/rare/scales_of_tile.cuh"
#include "kernels/decode/rare/staged_stores.cuh"

namespace kv {

template <class Plan>
requires DividesKeys<Plan>
struct DividedKeys<Plan> {
  using K = typename Plan::K;
  bool is_divided;
  float power[Plan::kSubtiles][2] = {};  // of the lane's rows g and g + 8 of each subtile, if is_divided

  KV_DEVICE void divide(SharedAddress stage, int first, const u32 (&misalignment)[Plan::kSubtiles][2]) {
    constexpr u32 kTopBits = 0x80008000u;
    is_divided = any((~((kTopBits | K::kMostScales) - largest_of(stage, first, misalignment)) & kTopBits) != 0);
    if (!is_divided) return;
    KV_UNROLL
    for (int i = 0; i < 2 * Plan::kSubtiles; ++i) {
      const SharedAddress row = row_at(stage, first, misalignment, i);
      u32 steps = 0;
      for_each_own(row, [&](auto s, SharedAddress at, int n) {
        steps = larger(steps, steps_above(s.scale_and_minimum(at, n) & 0x7fffu, K::kMostScales & 0xffffu));
      });
      KV_UNROLL
      for (int mask = 1; mask < 4; mask <<= 1) steps = larger(steps, shfl_xor(steps, mask));
      for_each_own(row, [&](auto s, SharedAddress at, int n) {
        s.store_scale_and_minimum(at, n, mul_f16x2(s.scale_and_minimum(at, n), half_power(-int(steps))));
      });
      power[i / 2][i % 2] = float_of((127 + steps) << 23);
    }
    end_stores(K{});
  }
  KV_DEVICE void restore(Scores<Plan> (&x)[Plan::kSubtiles]) const {
    if (!is_divided) return;
    KV_UNROLL
    for (int i = 0; i < Plan::kSubtiles * 4 * Plan::kColumnBlocks; ++i)
      x[i / (4 * Plan::kColumnBlocks)][i / 4 % Plan::kColumnBlocks][i % 4] *=
          power[i / (4 * Plan::kColumnBlocks)][i % 4 / 2];
  }

 private:
  // The largest of a share of the scales of the warp's tokens, in one half of the word or in both.
  KV_DEVICE static u32 largest_of(SharedAddress stage, int first, const u32 (&misalignment)[Plan::kSubtiles][2]) {
    constexpr int kTokens = 16 * Plan::kSubtiles;
    if constexpr (has_words_of_scales<K, kTokens>()) return largest_word<K, kTokens>(stage, first);
    u32 most = 0;
    KV_UNROLL
    for (int i = 0; i < 2 * Plan::kSubtiles; ++i)
      for_each_own(row_at(stage, first, misalignment, i),
                   [&](auto s, SharedAddress at, int n) { most = larger_f16x2(most, s.scale_and_minimum(at, n)); });
    return most;
  }
  // The scales of the lane's row i: g and g + 8 of each subtile.
  KV_DEVICE static SharedAddress row_at(SharedAddress stage, int first, const u32 (&misalignment)[Plan::kSubtiles][2],
                                        int i) {
    return stage + misalignment[i / 2][i % 2] + K::kScalesAt + (first + i * 8 + (lane() >> 2)) * K::kScalePitch;
  }
  // Calls take(section, scales of a block, number of the scale) for the lane's share of the scales of a row: four lanes
  // share it.
  template <class Take>
  KV_DEVICE static void for_each_own(SharedAddress row, const Take& take) {
    for_each(typename K::Sections{}, [&](auto section) {
      using S = decltype(section);
      KV_UNROLL
      for (int i = 0; i < scales_of_row<S>(); i += 4) {
        const int own = i + (lane() & 3);
        if (own < scales_of_row<S>())
          take(section, row + own / scales_of_block<S>() * S::kScaleStride, own % scales_of_block<S>());
      }
    });
  }
};

}  // namespace kv
