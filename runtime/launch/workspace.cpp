// The layout of a workspace: see workspace.hpp.
// SPDX-License-Identifier: MIT
#include "runtime/launch/workspace.hpp"

#include <utility>

#include "runtime/base/sizes.hpp"
#include "runtime/launch/tile_schedule.hpp"

namespace kvjit {

Workspace lay_out(const ProgramSource& source, const AttentionCall& call, int blocks) {
  // `reference` reads Q that `rotate_q` rotated, and `rotate_out` rotates its output back. So the workspace has these
  // rows even if `decode` rotates Q and the output itself.
  const auto dense = [&](const SideInfo& side) {
    return product(sizeof(float), call.sequences, source.query_length, q_heads(source, call), side.rotated_dim);
  };
  // The index of a partial result is its block's number plus its batch-head's (TileScheduler::partial_index of
  // kernels/decode/tile_scheduler.cuh).
  const std::size_t slots =
      plus(product(1, call.sequences, scheduler_heads(source, call)), static_cast<std::size_t>(blocks));
  const std::size_t states = times(times(slots, source.rows), sizeof(float));
  Workspace layout;
  std::size_t end = kCounterBytes;
  const auto place = [&end](std::size_t bytes) { return std::exchange(end, rounded(plus(end, bytes))); };
  layout.rotated_q = place(source.k.is_transformed ? dense(source.k) : 0);
  layout.partial = place(times(states, source.v.rotated_dim));
  layout.state = place(times(states, 2));
  layout.unrotated_out = place(source.v.is_transformed ? dense(source.v) : 0);
  layout.bytes = end;
  return layout;
}

}  // namespace kvjit
