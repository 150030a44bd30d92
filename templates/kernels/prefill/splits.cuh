// Split-KV of prefill. Each consumer warp stores the sums and the softmax of its rows for its split, in the order of
// its registers, and counts itself. Of the warps that have the same rows, the one that counts last merges all parts in
// their order, so the same call gives the same bits; then it goes on as if it had attended to all tokens. A part is a
// split or, where both consumers of a block have the same rows and take tiles in turn, every second tile of a split. A
// counter is a word for each work tile, whose bits the warps that have different rows share: zero before and after a
// call. A work tile has as many slots as the list (kernels/prefill/work_tiles.cuh) has splits of it.
//
//   partial        [slot][part of the split][warp][block][16 bytes of sums][lane]
//   partial_state  [slot][part of the split][warp][block][lane] of two reference maxima and two denominators
// SPDX-License-Identifier: MIT
#pragma once
#include "args/attention.cuh"
#include "device/warp_roles.cuh"
#include "kernels/prefill/rows.cuh"
#include "kernels/prefill/work_tiles.cuh"

namespace kv {

// kRowWarps is the number of warps that have different rows of a work tile, kSplitParts that of the parts of a split.
template <class Plan>
constexpr int kRowWarps = Plan::kAlternates ? 4 : Plan::kConsumerWarps;
template <class Plan>
constexpr int kSplitParts = Plan::kConsumerWarps / kRowWarps<Plan>;

// The partial results of a warp in memory, from those of a slot on.
template <class Plan, int kBlocks, int kSums>
class PartialResult {
  static constexpr int kWords = kSums / 4;
  float* const sums_;
  float* const state_;
  const i64 first_;  // block of the warp
  const int lane_;   // hidden, so that the loop over tiles holds no address

  KV_DEVICE i64 block(int part, int b) const { return first_ + i64(part) * (kRowWarps<Plan> * kBlocks) + b; }
  KV_DEVICE float* state(int part, int b) const { return state_ + (block(part, b) * 32 + lane_) * 4; }
  KV_DEVICE float* sums(int part, int b, int j) const {
    return sums_ + ((block(part, b) * kWords + j) * 32 + lane_) * 4;
  }

 public:
  KV_DEVICE PartialResult(float* sums, float* state, i64 slot)
      : sums_(sums),
        state_(state),
        first_((slot * Plan::kConsumerWarps + (warp() - Plan::kWarps) % kRowWarps<Plan>)*kBlocks),
        lane_(own_lane()) {}

  template <class Softmax>
  KV_DEVICE void store(const Softmax (&softmax)[kBlocks], const float (&o)[kBlocks][kSums], int part) const {
    KV_UNROLL
    for (int b = 0; b < kBlocks; ++b) {
      store_u128(state(part, b), bits_of(softmax[b].reference_max[0]), bits_of(softmax[b].reference_max[1]),
                 bits_of(softmax[b].sum[0]), bits_of(softmax[b].sum[1]));
      KV_UNROLL
      for (int j = 0; j < kWords; ++j)
        store_u128(sums(part, b, j), bits_of(o[b][4 * j]), bits_of(o[b][4 * j + 1]), bits_of(o[b][4 * j + 2]),
                   bits_of(o[b][4 * j + 3]));
    }
  }
  // Two reference maxima, then two denominators.
  KV_DEVICE void load_state(u32 (&words)[4], int part, int b) const { load_coherent_u128(words, state(part, b)); }
  // Adds what is stored of a block to sums whose reference maxima are not smaller.
  template <class Softmax>
  KV_DEVICE void add_to(Softmax& softmax, float (&o)[kSums], int part, int b) const {
    u32 stored[4], words[4];
    load_state(stored, part, b);
    float weight[2];
    KV_UNROLL
    for (int h = 0; h < 2; ++h) {
      weight[h] = exp2_fast(float_of(stored[h]) - softmax.reference_max[h]);
      softmax.sum[h] = fma_rn(weight[h], float_of(stored[2 + h]), softmax.sum[h]);
    }
    KV_UNROLL
    for (int j = 0; j < kWords; ++j) {
      load_coherent_u128(words, sums(part, b, j));
      KV_UNROLL
      for (int i = 0; i < 4; ++i) o[4 * j + i] = fma_rn(weight[i / 2], float_of(words[i]), o[4 * j + i]);
    }
  }
};

// Whether a warp has a part of a work tile's tokens only. A split that the work tile does not need has no rows.
template <class Plan>
KV_DEVICE bool is_split(const WorkTile& work) {
  return kSplitParts<Plan> > 1 ? work.first_row < Plan::kAllRows : work.splits > 1;
}
// softmax, o: of the lane's rows over the tokens of a part. own: which part of its split. Returns whether this warp has
// merged all parts into them.
template <class Plan, class Args, class Softmax, int kBlocks, int kSums>
KV_DEVICE bool merge_splits(const Args& args, const WorkTile& work, int own, Softmax (&softmax)[kBlocks],
                            float (&o)[kBlocks][kSums]) {
  constexpr int kBits = 32 / kRowWarps<Plan>;  // of a warp in a counter
  const int shift = (kv::warp() - Plan::kWarps) % kRowWarps<Plan> * kBits, parts = work.splits * kSplitParts<Plan>;
  const PartialResult<Plan, kBlocks, kSums> partial(args.partial, args.partial_state, work.slot);
  partial.store(softmax, o, work.split * kSplitParts<Plan> + own);
  u32* const counter = args.split_counters + work.number;
  const u32 before = add_warp_arrival(counter, 1u << shift);
  if (warp_uniform(int(before >> shift & ((1u << kBits) - 1)) + 1 < parts)) return false;
  if (lane() == 0) add_arrival(counter, 0u - (u32(parts) << shift));
  KV_UNROLL
  for (int b = 0; b < kBlocks; ++b) {
    softmax[b].reset();
    KV_UNROLL
    for (int i = 0; i < kSums; ++i) o[b][i] = 0.f;
    KV_UNROLL_BY(4)  // their loads are under way together
    for (int part = 0; part < parts; ++part) {
      u32 state[4];
      partial.load_state(state, part, b);
      KV_UNROLL
      for (int h = 0; h < 2; ++h) softmax[b].reference_max[h] = larger(softmax[b].reference_max[h], float_of(state[h]));
    }
    KV_NO_UNROLL
    for (int part = 0; part < parts; ++part) partial.add_to(softmax[b], o[b], part, b);
  }
  return true;
}

}  // namespace kv
