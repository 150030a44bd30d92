// mask_ranges: finds the first and the last token of each sequence that its mask shows to any query, so that calls with
// the feature token_ranges leave out the tiles before and behind. A block takes a sequence. It reads the mask from the
// front until a token is shown, and then from the back. Every entry is read where nothing is shown, and few where the
// first and the last tokens are. The layers of a model share a mask, so an engine asks once a step.
// SPDX-License-Identifier: MIT
#pragma once
#include "args/features.cuh"
#include "device/simt.cuh"

namespace kv {

template <class Plan>
struct MaskRows {
  static constexpr int kAtOnce = 8, kStep = Plan::kThreads * kAtOnce;  // tokens of a lane and of a block in one step
  const MaskRangesArgs& args;
  const u16* mask;  // of the sequence
  int length;

  // A bit for each of the lane's tokens of the step from `first` on: token i * kThreads + thread() is shown.
  KV_DEVICE u32 shown(int first) const {
    constexpr u32 kMinusInfinity = 0xfc00;
    u32 bits = 0;
    KV_NO_UNROLL
    for (int row = 0; row < args.queries * args.heads; ++row) {
      const u16* const from =
          mask + row / args.queries * args.mask_head_stride + row % args.queries * args.mask_query_stride;
      u32 entries[kAtOnce];
      KV_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        const int token = first + i * Plan::kThreads + thread();
        entries[i] = token < length ? from[token] : kMinusInfinity;
      }
      KV_UNROLL
      for (int i = 0; i < kAtOnce; ++i) bits |= u32(entries[i] != kMinusInfinity) << i;
    }
    return bits;
  }
};

// The smallest (kIsLeast) or the largest number of all threads of the block.
template <class Plan, bool kIsLeast>
KV_DEVICE int extreme_of_block(int number) {
  const auto better = [](int a, int b) { return (a < b) == kIsLeast ? a : b; };
  KV_UNROLL
  for (int mask = 16; mask > 0; mask >>= 1) number = better(number, int(shfl_xor(u32(number), mask)));
  sync_block();  // what the block wrote here before has been read
  if (lane() == 0) store_shared_u32(warp() * 4, u32(number));
  sync_block();
  KV_NO_UNROLL
  for (int i = 0; i < Plan::kThreads / 32; ++i) number = better(number, int(load_shared_u32(i * 4)));
  return number;
}

// grid: sequences.
template <class Plan>
KV_DEVICE void mask_ranges(const MaskRangesArgs& args) {
  const int sequence = block_x(), stored_length = args.lengths ? args.lengths[sequence] : args.tokens;
  const int length = stored_length < 0 ? 0 : stored_length < args.tokens ? stored_length : args.tokens;
  const MaskRows<Plan> rows{args, args.mask + sequence * args.mask_sequence_stride, length};
  constexpr int kStep = MaskRows<Plan>::kStep;
  int first = length, end = 0;  // nothing is shown
  KV_NO_UNROLL
  for (int at = 0; at < length; at += kStep) {
    const u32 bits = rows.shown(at);
    int own = length;
    KV_UNROLL
    for (int i = MaskRows<Plan>::kAtOnce - 1; i >= 0; --i)
      if (bits >> i & 1) own = at + i * Plan::kThreads + thread();
    first = extreme_of_block<Plan, true>(own);
    if (warp_uniform(first < length)) break;
  }
  KV_NO_UNROLL
  for (int at = (length - 1) / kStep * kStep; at >= 0 && first < length; at -= kStep) {
    const u32 bits = rows.shown(at);
    int own = 0;
    KV_UNROLL
    for (int i = 0; i < MaskRows<Plan>::kAtOnce; ++i)
      if (bits >> i & 1) own = at + i * Plan::kThreads + thread() + 1;
    end = extreme_of_block<Plan, false>(own);
    if (warp_uniform(end > 0)) break;
  }
  if (thread() != 0) return;
  args.token_ranges[2 * sequence] = first;
  args.token_ranges[2 * sequence + 1] = end;
}

}  // namespace kv
