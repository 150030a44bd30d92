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
#include "kernels/prefill/rows.cuh"
#include "kernels/prefill/work_tiles.cuh"

namespace kv {

constexpr int kSplitBits = 4;  // of a warp in a counter

// The partial results of a warp in memory, from those of a slot on.
template <class Plan, int kBlocks, int kSums>
class PartialResult {
  static constexpr int kWarps = Plan::kConsumerWarps, kWords = kSums / 4;
  float* const sums_;
  float* const state_;
  const i64 first_;  // block of the warp
  const int lane_;   // hidden, so that the loop over tiles holds no address

  KV_DEVICE i64 block(int split, int b) const { return first_ + i64(split) * (kWarps * kBlocks) + b; }
  KV_DEVICE float* state(int split, int b) const { return state_ + (block(split, b) * 32 + lane_) * 4; }
  KV_DEVICE float* sums(int split, int b, int j) const {
    return sums_ + ((block(split, b) * kWords + j) * 32 + lane_) * 4;
  }

 public:
  KV_DEVICE PartialResult(float* sums, float* state, i64 slot)
      : sums_(sums), state_(state), first_((slot * kWarps + warp() - Plan::kWarps) * kBlocks), lane_(own_lane()) {}

  template <class Softmax>
  KV_DEVICE void store(const Softmax (&softmax)[kBlocks], const float (&o)[kBlocks][kSums], int split) const {
    KV_UNROLL
    for (int b = 0; b < kBlocks; ++b) {
      store_u128(state(split, b), bits_of(softmax[b].reference_max[0]), bits_of(softmax[b].reference_max[1]),
                 bits_of(softmax[b].sum[0]), bits_of(softmax[b].sum[1]));
      KV_UNROLL
      for (int j = 0; j < kWords; ++j)
        store_u128(sums(split, b, j), bits_of(o[b][4 * j]), bits_of(o[b][4 * j + 1]), bits_of(o[b][4 * j + 2]),
                   bits_of(o[b][4 * j + 3]));
    }
  }
  // Two reference maxima, then two denominators.
  KV_DEVICE void load_state(u32 (&words)[4], int split, int b) const { load_coherent_u128(words, state(split, b)); }
  // Adds what is stored of a block to sums whose reference maxima are not smaller.
  template <class Softmax>
  KV_DEVICE void add_to(Softmax& softmax, float (&o)[kSums], int split, int b) const {
    u32 stored[4], words[4];
    load_state(stored, split, b);
    float weight[2];
    KV_UNROLL
    for (int h = 0; h < 2; ++h) {
      weight[h] = exp2_fast(float_of(stored[h]) - softmax.reference_max[h]);
      softmax.sum[h] = fma_rn(weight[h], float_of(stored[2 + h]), softmax.sum[h]);
    }
    KV_UNROLL
    for (int j = 0; j < kWords; ++j) {
      load_coherent_u128(words, sums(split, b, j));
      KV_UNROLL
      for (int i = 0; i < 4; ++i) o[4 * j + i] = fma_rn(weight[i / 2], float_of(words[i]), o[4 * j + i]);
    }
  }
};

// softmax, o: of the lane's rows over the tokens of a split. Returns whether this warp has merged all splits into them.
template <class Plan, class Args, class Softmax, int kBlocks, int kSums>
KV_DEVICE bool merge_splits(const Args& args, const WorkTile& work, Softmax (&softmax)[kBlocks],
                            float (&o)[kBlocks][kSums]) {
  const int warp = kv::warp() - Plan::kWarps;
  const PartialResult<Plan, kBlocks, kSums> partial(args.partial, args.partial_state, work.slot);
  partial.store(softmax, o, work.split);
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
      u32 state[4];
      partial.load_state(state, split, b);
      KV_UNROLL
      for (int h = 0; h < 2; ++h) softmax[b].reference_max[h] = larger(softmax[b].reference_max[h], float_of(state[h]));
    }
    KV_NO_UNROLL
    for (int split = 0; split < work.splits; ++split) partial.add_to(softmax[b], o[b], split, b);
  }
  return true;
}

}  // namespace kv
