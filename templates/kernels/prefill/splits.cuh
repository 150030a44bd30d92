// Split-KV of prefill. Each consumer warp stores the sums and the softmax of its rows for its split, in the order of
// its registers, and counts itself. Of the warps that have the same rows, the one that counts last merges all splits in
// their order, so the same call gives the same bits; then it goes on as if it had attended to all tokens. A counter is
// a word for each work tile, with four bits for each of its warps: zero before and after a call. A work tile has as
// many slots as the list (kernels/prefill/work_tiles.cuh) has splits of it.
//
//   partial        [slot][warp][block][16 bytes of sums][lane]
//   partial_state  [slot][warp][block][lane] of two reference maxima and two denominators
// SPDX-License-Identifier: MIT
#pragma once
#include "args/attention.cuh"
#include "device/warp_roles.cuh"
#include "kernels/prefill/work_tiles.cuh"

namespace kv {

constexpr int kSplitBits = 4;  // of a warp in a counter

// softmax, o: of the lane's rows over the tokens of a split. Returns whether this warp has merged all splits into them.
template <class Plan, class Args, class Softmax, int kBlocks, int kSums>
KV_DEVICE bool merge_splits(const Args& args, const WorkTile& work, Softmax (&softmax)[kBlocks],
                            float (&o)[kBlocks][kSums]) {
  constexpr int kWarps = Plan::kConsumerWarps, kWords = kSums / 4;
  const int warp = kv::warp() - Plan::kWarps;
  const i64 first = (i64(work.slot) * kWarps + warp) * kBlocks;
  const auto sums = [&](int split, int b, int j) {
    return args.partial + (((first + i64(split) * (kWarps * kBlocks) + b) * kWords + j) * 32 + lane()) * 4;
  };
  const auto state = [&](int split, int b) {
    return args.partial_state + ((first + i64(split) * (kWarps * kBlocks) + b) * 32 + lane()) * 4;
  };
  KV_UNROLL
  for (int b = 0; b < kBlocks; ++b) {
    store_u128(state(work.split, b), bits_of(softmax[b].reference_max[0]), bits_of(softmax[b].reference_max[1]),
               bits_of(softmax[b].sum[0]), bits_of(softmax[b].sum[1]));
    KV_UNROLL
    for (int j = 0; j < kWords; ++j)
      store_u128(sums(work.split, b, j), bits_of(o[b][4 * j]), bits_of(o[b][4 * j + 1]), bits_of(o[b][4 * j + 2]),
                 bits_of(o[b][4 * j + 3]));
  }
  u32* const counter = args.split_counters + work.number;
  const u32 before = add_warp_arrival(counter, 1u << kSplitBits * warp);
  if (warp_uniform(int(before >> kSplitBits * warp & 15) + 1 < work.splits)) return false;
  if (lane() == 0) add_arrival(counter, 0u - (u32(work.splits) << kSplitBits * warp));
  KV_UNROLL
  for (int b = 0; b < kBlocks; ++b) {
    softmax[b].reset();
    KV_UNROLL
    for (int i = 0; i < kSums; ++i) o[b][i] = 0.f;
    KV_UNROLL_BY(4)  // their loads are under way together
    for (int split = 0; split < work.splits; ++split) {
      u32 of_split[4];
      load_coherent_u128(of_split, state(split, b));
      KV_UNROLL
      for (int h = 0; h < 2; ++h)
        softmax[b].reference_max[h] = larger(softmax[b].reference_max[h], float_of(of_split[h]));
    }
    KV_NO_UNROLL
    for (int split = 0; split < work.splits; ++split) {
      u32 of_split[4], words[4];
      load_coherent_u128(of_split, state(split, b));
      float weight[2];
      KV_UNROLL
      for (int h = 0; h < 2; ++h) {
        weight[h] = exp2_fast(float_of(of_split[h]) - softmax[b].reference_max[h]);
        softmax[b].sum[h] = fma_rn(weight[h], float_of(of_split[2 + h]), softmax[b].sum[h]);
      }
      KV_UNROLL
      for (int j = 0; j < kWords; ++j) {
        load_coherent_u128(words, sums(split, b, j));
        KV_UNROLL
        for (int i = 0; i < 4; ++i) o[b][4 * j + i] = fma_rn(weight[i / 2], float_of(words[i]), o[b][4 * j + i]);
      }
    }
  }
  return true;
}

}  // namespace kv
