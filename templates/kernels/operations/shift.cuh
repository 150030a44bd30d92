// shift: moves keys of a cache to other positions, in place. It decodes a row, applies RoPE by the difference of the
// positions (rotations/rope.cuh), and encodes the row again. A warp takes one row at a time and then goes on to further
// rows. Rows with a difference of 0 keep their bytes.
// SPDX-License-Identifier: MIT
#pragma once
#include "kernels/operations/cache_tokens.cuh"
#include "device/simt.cuh"
#include "formats/read_row.cuh"
#include "formats/write_row.cuh"
#include "rotations/rope.cuh"

namespace kv {

template <class Plan>
KV_DEVICE void shift(const ShiftArgs& args) {
  using F = typename Plan::F;
  constexpr int kPerLane = per_lane(F::kStored);
  fill_steps<Plan::kWarps * 32>(args.rope, Plan::kStepsAt);
  sync_block();
  u8* const bytes = shared_bytes() + warp() * Plan::kWarpBytes;
  KV_NO_UNROLL
  for (u32 number = u32(block_x()) * Plan::kWarps + warp(); number < operation_rows(args);
       number += u32(args.blocks) * Plan::kWarps) {
    const OperationRow row = operation_row(args, number);
    const i64 slot = slot_of(args.at, row);
    const int by = args.rope.positions ? args.rope.positions[row.index] : args.rope.position;
    if (slot < 0 || by == 0) continue;
    const StoredRow stored = stored_row<F>(args.at.side, row.sequence, row.head, slot);
    float x[kPerLane];
    read_row<Plan>(stored, args.at.tensor_scale, x);
    KV_UNROLL
    for (int e = 0; e < kPerLane; ++e) x[e] = e * 32 + lane() < Plan::kHeadDim ? x[e] : 0.f;
    rope(x, args.rope, by, Plan::kStepsAt, reinterpret_cast<float*>(bytes));
    write_values<Plan>(x, args.at.tensor_scale, bytes, stored);
    sync_warp();  // every lane is done with `bytes`, which the next row uses again
  }
}

}  // namespace kv
