// merge: the KV splits that decode left in memory become rows of output, in a launch of their own. A block has 128
// neighbouring output elements of a row, or the whole row if it also rotates the row back from V's domain. Its warps
// share the splits of the batch-head, and their states are merged in the order of the warps (the sum is that of
// kernels/decode/split_merge.cuh), so the same call gives the same bits. A row that sees no token gives zeros.
// SPDX-License-Identifier: MIT
#pragma once
#include "kernels/decode/split_merge.cuh"

namespace kv {

// The state that each warp has merged, in shared memory: [warp][lane] of four output elements, and [warp] of reference
// maximum and denominator.
template <class Plan>
struct WarpParts {
  static constexpr int kStatesAt = Plan::kThreads * 16, kRowAt = kStatesAt + Plan::kThreads / 32 * 8;

  KV_DEVICE static void store(const RowSums& sum) {
    store_shared_u128(thread() * 16, bits_of(sum.x[0]), bits_of(sum.x[1]), bits_of(sum.x[2]), bits_of(sum.x[3]));
    if (lane() != 0) return;
    store_shared_u32(kStatesAt + warp() * 8, bits_of(sum.top));
    store_shared_u32(kStatesAt + warp() * 8 + 4, bits_of(sum.denominator));
  }
  KV_DEVICE static RowSums load(int warp) {
    u32 state[2], words[4];
    load_shared_u64(state, kStatesAt + warp * 8);
    load_shared_u128(words, (warp * 32 + lane()) * 16);
    return {float_of(state[0]),
            float_of(state[1]),
            {float_of(words[0]), float_of(words[1]), float_of(words[2]), float_of(words[3])}};
  }
};

// grid: (query rows x blocks of a row, scheduler heads, sequences).
template <class Plan, class Args>
KV_DEVICE void merge(const Args& args) {
  using W = WarpParts<Plan>;
  constexpr int kSlices = Plan::kSlices,                     // slices of 128 elements of a row, in one block
      kShares = Plan::kThreads / 32 / kSlices,               // warps that share the splits of a slice
      kRowBlocks = (Plan::kValueDim + 127) / 128 / kSlices;  // blocks of a row
  constexpr int kAtOnce = 8;                                 // splits loaded at once: about a warp's share
  release_successor();
  const int row = block_x() / kRowBlocks, slice = warp() % kSlices, share = warp() / kSlices;
  const int at = (block_x() % kRowBlocks * kSlices + slice) * 128 + lane() * 4;  // the lane's first element of the row
  const Turn<Plan> turn(block_y());
  int order[4];
  KV_UNROLL
  for (int j = 0; j < 4; ++j) order[j] = Plan::value_order(at < Plan::kValueDim ? at + j : 0);
  wait_for_predecessor();
  auto work = work_of<Plan>(args);
  work.look();
  const Part pair = work.pair(block_z(), block_y());
  if (!turn.has(row) || (Plan::kSkipsWhole && pair.is_whole())) return;  // the whole block returns
  const auto end = row_end<Plan>(args, pair, row);

  if (at < Plan::kValueDim) {
    const int begin = pair.parts * share / kShares, count = pair.parts * (share + 1) / kShares - begin;
    const Partials<Plan> partials(args, work.slot(pair.first_block + begin, pair.sequence, pair.head), row, at);
    W::store(sum_rows<kAtOnce>(count, [&](int p) { return partials.load(p); }));
  }
  sync_block();
  const i64 to = row_place<Plan>(args.out, pair.sequence, turn, row);
  if (share == 0 && at < Plan::kValueDim) {
    const RowSums all = sum_rows<kShares>(kShares, [&](int s) { return W::load(s * kSlices + slice); });
    const RowSums sum = end.of(all, at == 0);
    const float inverse = sum.inverse();
    KV_UNROLL
    for (int j = 0; j < 4; ++j) {
      const float x = sum.x[j] * inverse;
      if constexpr (Plan::kRotatesOutput)
        store_shared_u32(W::kRowAt + order[j] * 4, bits_of(x));
      else if (order[j] < Plan::kOutputDim)
        Plan::store(args.out.data, to + order[j], x);
    }
  }
  if constexpr (Plan::kRotatesOutput) {
    sync_block();
    if (warp() == 0) write_row<Plan>(args.out, to, W::kRowAt);
  }
}

}  // namespace kv
