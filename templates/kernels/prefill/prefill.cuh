// prefill: attention of many query rows over a packed cache, in one launch. A persistent block of warpgroups takes work
// tiles (kernels/prefill/work_tiles.cuh) of 256 or 128 query rows one after the other.
//
//   one or two warpgroups   producer: packed rows -> halves in shared memory      kernels/prefill/producer.cuh
//   two warpgroups          consumers: products, online softmax, output           kernels/prefill/consumer.cuh
//
// K and V are halves in shared memory only. One conversion serves all rows of a work tile, so it costs the tensor
// cores no time: a tile of 128 tokens and dimensions takes them 4096 cycles, and the producer unpacks its 32,768 values
// beside them.
//
// A thread of the producer needs few registers and one of a consumer many, so registers move from one to the other.
// SPDX-License-Identifier: MIT
#pragma once
#include "kernels/prefill/consumer.cuh"

namespace kv {

template <class Plan, class Args>
KV_DEVICE void attend_work_tiles(const Args& args) {
  fill_entries<typename Plan::K>();
  fill_entries<typename Plan::V>();
  if constexpr (Plan::kScalesScores) TokenFactors<Plan>::fill_ones();
  TokenExponents<Plan, false>::open();
  TokenExponents<Plan, true>::open();
  if (thread() == 0) {
    PostedWork<Plan>::open();
    Stages<Plan>::open();
  }
  sync_block();
  if (warp() < Plan::kWarps) {
    release_registers<Plan::kProducerRegisters>();
    if constexpr (Plan::kCopiesRows)
      produce_f16<Plan>(args);
    else
      produce<Plan>(args);
  } else {
    request_registers<Plan::kConsumerRegisters>();
    consume<Plan>(args);
  }
}

}  // namespace kv
