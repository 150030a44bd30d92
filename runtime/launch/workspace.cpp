// The layout of a workspace: see workspace.hpp.
// SPDX-License-Identifier: MIT
#include "runtime/launch/workspace.hpp"

#include <algorithm>
#include <utility>

#include "runtime/base/sizes.hpp"
#include "runtime/launch/prefill.hpp"
#include "runtime/launch/tile_schedule.hpp"

namespace kvjit {

Workspace lay_out(const ProgramSource& source, const DeviceInfo& device, const AttentionCall& call) {
  // The rotated rows come first, so that all kernels that share a call have them in the same place (varlen.cpp).
  // `reference` reads Q that `rotate_q` rotated, and `rotate_out` rotates its output back. So the workspace has these
  // rows even if `decode` rotates Q and the output itself.
  const auto dense = [&](const SideInfo& side) {
    return product(sizeof(float), query_rows(source, call), q_heads(source, call), side.rotated_dim);
  };
  // The index of a partial result is its block's number plus its batch-head's (TileScheduler::partial_index of
  // kernels/decode/tile_scheduler.cuh).
  const std::size_t slots = plus(product(1, call.sequences, scheduler_heads(source, call)),
                                 static_cast<std::size_t>(most_blocks(source, device, call)));
  const bool has_decode = source.kernels.count(Role::decode) != 0;
  const std::size_t states = has_decode ? times(times(slots, source.rows), sizeof(float)) : 0;
  // Splits of prefill: templates/kernels/prefill/splits.cuh.
  const std::size_t slots_of_many = product(sizeof(float), prefill_slots(source, device, call), 1);
  Workspace layout;
  std::size_t end = kCounterBytes;
  const auto place = [&end](std::size_t bytes) { return std::exchange(end, rounded(plus(end, bytes))); };
  layout.rotated_q = place(source.k.is_transformed ? dense(source.k) : 0);
  layout.unrotated_out = place(source.v.is_transformed ? dense(source.v) : 0);
  layout.partial =
      place(std::max(times(states, source.v.rotated_dim), times(slots_of_many, source.prefill_splits.slot_sums)));
  layout.state = place(std::max(times(states, 2), times(slots_of_many, source.prefill_splits.slot_states)));
  layout.bytes = end;
  return layout;
}

}  // namespace kvjit
