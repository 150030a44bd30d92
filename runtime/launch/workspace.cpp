// The layout of a workspace: see workspace.hpp.
// SPDX-License-Identifier: MIT
#include "runtime/launch/workspace.hpp"

#include <utility>

#include "runtime/base/sizes.hpp"
#include "runtime/launch/tile_schedule.hpp"

namespace kvjit {

Workspace lay_out(const ProgramSource& source, const AttentionCall& call, int blocks) {
  // `reference` takes Q that a launch of its own rotated, and its output is rotated likewise. So fused programs have
  // the pieces for such rows too.
  const auto dense = [&](const SideInfo& side) {
    return product(sizeof(float), call.sequences, source.query_length, q_heads(source, call), side.rotated_dim);
  };
  // The slot of a partial result is its block plus its batch-head (Work::slot of kernels/decode/tile_scheduler.cuh).
  const std::size_t slots =
      plus(product(1, call.sequences, scheduler_heads(source, call)), static_cast<std::size_t>(blocks));
  const std::size_t states = times(times(slots, source.rows), sizeof(float));
  Workspace pieces;
  std::size_t end = kCounterBytes;
  const auto place = [&end](std::size_t bytes) { return std::exchange(end, rounded(plus(end, bytes))); };
  pieces.rotated_q = place(source.k.is_transformed ? dense(source.k) : 0);
  pieces.partial = place(times(states, source.v.rotated_dim));
  pieces.state = place(times(states, 2));
  pieces.unrotated_out = place(source.v.is_transformed ? dense(source.v) : 0);
  pieces.bytes = end;
  return pieces;
}

}  // namespace kvjit
