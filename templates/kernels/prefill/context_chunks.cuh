// prefill over a chunk of the context, the second pass of two (args/context_chunks.cuh). The tiles of a work tile are
// those of the chunk. At its end the sums over the chunks before are added, and behind the last chunk the rows are
// finished. Work tiles have the same numbers in each launch, so they find their sums by number.
// SPDX-License-Identifier: MIT
#pragma once
#include "args/context_chunks.cuh"
#include "kernels/prefill/consumer.cuh"

namespace kv {

template <class Args>
concept HasContextChunk = requires(const Args& args) {
  args.context_chunk;
};

struct ContextChunk {
  const ContextChunkArgs& chunk;
  KV_DEVICE int first(int token) const { return token > chunk.first_token ? token : chunk.first_token; }
  KV_DEVICE int end(int token) const { return token < chunk.end_token ? token : chunk.end_token; }
  KV_DEVICE int stored_from() const { return chunk.first_token; }
};
template <class Plan, HasContextChunk Args>
KV_DEVICE ContextChunk context_of(const Args& args) {
  return {args.context_chunk};
}

// Where rows may have powers of two, there are two kernels: one for chunks in which a row has one, and one for the
// others, which knows of no exponents. The other kernel of a chunk has nothing to do.
template <class Plan, HasContextChunk Args>
requires requires {
  Plan::kTakesPowers;
}
KV_DEVICE void prefill(const Args& args) {
  const RowPowers& powers = args.context_chunk.powers;
  const bool has_powers = load_coherent_u32(powers.used) == powers.chunk;
  if (warp_uniform(has_powers == Plan::kTakesPowers)) attend_work_tiles<Plan>(args);
}

// softmax, o: of the lane's rows over the tokens of the chunk. Returns whether they are over all chunks now.
template <class Plan, HasContextChunk Args, class Softmax, int kBlocks, int kSums>
KV_DEVICE bool finish_context_chunk(const Args& args, const WorkTile& work, Softmax (&softmax)[kBlocks],
                                    float (&o)[kBlocks][kSums]) {
  const ContextChunkArgs& chunk = args.context_chunk;
  if (warp_uniform(work.first_row >= Plan::kAllRows)) return false;  // a split that the work tile does not need
  const PartialResult<Plan, kBlocks, kSums> before(chunk.sums, chunk.state, work.number);
  if (warp_uniform(chunk.first_token > 0)) {
    KV_UNROLL
    for (int b = 0; b < kBlocks; ++b) {
      u32 state[4];
      before.load_state(state, 0, b);
      float factor[2];
      KV_UNROLL
      for (int h = 0; h < 2; ++h) {
        const float most = larger(softmax[b].reference_max[h], float_of(state[h]));
        factor[h] = exp2_fast(softmax[b].reference_max[h] - most);
        softmax[b].reference_max[h] = most, softmax[b].sum[h] *= factor[h];
      }
      KV_UNROLL
      for (int i = 0; i < kSums; ++i) o[b][i] *= factor[i / 2 % 2];
      before.add_to(softmax[b], o[b], 0, b);
    }
  }
  if (warp_uniform(chunk.is_last)) return true;
  before.store(softmax, o, 0);
  return false;
}

}  // namespace kv
