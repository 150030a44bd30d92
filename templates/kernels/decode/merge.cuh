// merge: the KV splits that decode left in memory become rows of output, in a launch of their own. A block has 128
// neighbouring output elements of a row, or the whole row if it also rotates the row back from V's domain. Its warps
// divide the splits of the batch-head, and their states are merged in the order of the warps (the sum is that of
// kernels/decode/split_merge.cuh), so the same call gives the same bits. A row that sees no token gives zeros.
// SPDX-License-Identifier: MIT
#pragma once
#include "kernels/decode/split_merge.cuh"

namespace kv {

// The state that each warp has merged, in shared memory: [warp][lane] of four output elements, and [warp] of reference
// maximum and denominator.
template <class Plan>
struct MergedByWarp {
  static constexpr int kStatesAt = Plan::kThreads * 16, kRowAt = kStatesAt + Plan::kThreads / 32 * 8;

  KV_DEVICE static void store(const SoftmaxState& sum) {
    store_shared_u128(thread() * 16, bits_of(sum.x[0]), bits_of(sum.x[1]), bits_of(sum.x[2]), bits_of(sum.x[3]));
    if (lane() != 0) return;
    store_shared_u32(kStatesAt + warp() * 8, bits_of(sum.row_max));
    store_shared_u32(kStatesAt + warp() * 8 + 4, bits_of(sum.denominator));
  }
  KV_DEVICE static SoftmaxState load(int warp) {
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
  using W = MergedByWarp<Plan>;
  constexpr int kSlices = Plan::kSlices,                     // slices of 128 elements of a row, in one block
      kSliceWarps = Plan::kThreads / 32 / kSlices,           // warps that divide the splits of a slice
      kRowBlocks = (Plan::kValueDim + 127) / 128 / kSlices;  // blocks of a row
  constexpr int kAtOnce = 8;                                 // splits loaded at once: about as many as a warp has
  pdl_trigger();
  const int row = block_x() / kRowBlocks, slice = warp() % kSlices, slice_warp = warp() / kSlices;
  const int at = (block_x() % kRowBlocks * kSlices + slice) * 128 + lane() * 4;  // the lane's first element of the row
  const QueryChunk<Plan> chunk(block_y());
  int order[4];
  KV_UNROLL
  for (int j = 0; j < 4; ++j) order[j] = Plan::value_order(at < Plan::kValueDim ? at + j : 0);
  pdl_wait();
  auto scheduler = scheduler_of<Plan>(args);
  scheduler.read_lengths();
  const KvSplit batch_head = scheduler.batch_head(block_z(), block_y());
  if (!chunk.has(row) || (Plan::kSkipsUnsplit && batch_head.is_unsplit())) return;  // the whole block returns
  const auto end = row_end<Plan>(args, batch_head, row);

  if (at < Plan::kValueDim) {
    const int begin = batch_head.splits * slice_warp / kSliceWarps,
              count = batch_head.splits * (slice_warp + 1) / kSliceWarps - begin;
    const Partials<Plan> partials(
        args, scheduler.partial_index(batch_head.first_block + begin, batch_head.sequence, batch_head.head), row, at);
    W::store(sum_rows<kAtOnce>(count, [&](int p) { return partials.load(p); }));
  }
  sync_block();
  const i64 to = row_place<Plan>(args.out, batch_head.sequence, chunk, row);
  if (slice_warp == 0 && at < Plan::kValueDim) {
    const SoftmaxState all = sum_rows<kSliceWarps>(kSliceWarps, [&](int s) { return W::load(s * kSlices + slice); });
    const SoftmaxState sum = end.of(all, at == 0);
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
