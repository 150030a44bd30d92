// quantize_rope: applies rotary position embedding (RoPE, rotations/rope.cuh) to rows and quantizes them into the
// cache. A warp takes one row at a time and then goes on to further rows, so the steps of the angles are computed once
// a block.
// SPDX-License-Identifier: MIT
#pragma once
#include "kernels/operations/cache_tokens.cuh"
#include "formats/number_rows.cuh"
#include "device/simt.cuh"
#include "formats/write_row.cuh"
#include "rotations/rope.cuh"

namespace kv {

template <class Plan>
KV_DEVICE void quantize_rope(const RopedCodecArgs& args) {
  using F = typename Plan::F;
  fill_steps<Plan::kWarps * 32>(args.rope, Plan::kStepsAt);
  sync_block();
  u8* const bytes = shared_bytes() + warp() * Plan::kWarpBytes;
  const u32 rows = u32(args.sequences) * args.tokens * args.heads;
  KV_NO_UNROLL
  for (u32 number = u32(block_x()) * Plan::kWarps + warp(); number < rows; number += u32(args.blocks) * Plan::kWarps) {
    const CodecRow at = codec_row(args, number);
    const u32 index = at.sequence * args.tokens + at.token;
    const i64 slot = slot_of(args, {at.sequence, at.token, at.head, index});
    if (slot < 0) continue;
    float x[per_lane(F::kStored)];
    load_values<Plan::kHeadDim>(args.x.data, args.x_type, at.in_x, x);
    rope(x, args.rope, args.rope.positions ? args.rope.positions[index] : args.rope.position, Plan::kStepsAt,
         reinterpret_cast<float*>(bytes));
    write_values<Plan>(x, args.tensor_scale, bytes, stored_row<F>(args.side, at.sequence, at.head, slot));
    sync_warp();  // every lane is done with `bytes`, which the next row uses again
  }
}

}  // namespace kv
