// dequantize: decodes rows of the cache to f16, bf16 or f32, in the original domain unless the caller asks for the
// rotated one (keep_rotated). A warp takes one (sequence, token, head) row. It serves every format; bulk kernels serve
// some formats faster.
// SPDX-License-Identifier: MIT
#pragma once
#include "args/attention.cuh"
#include "formats/number_rows.cuh"
#include "device/simt.cuh"
#include "formats/read_row.cuh"

namespace kv {

template <class Plan>
KV_DEVICE void dequantize(const CodecArgs& args) {
  using F = typename Plan::F;
  constexpr int kPerLane = per_lane(F::kStored);
  const u32 row = u32(block_x()) * Plan::kWarps + warp();
  if (row >= u32(args.sequences) * args.tokens * args.heads) return;  // true of the whole warp
  const CodecRow at = codec_row(args, row);
  float x[kPerLane], second[kPerLane];
  load_stored<Plan>(stored_row<F>(args.side, at.sequence, at.head, args.first_token + at.token), args.tensor_scale, x,
                    second);
  if (args.keep_rotated) {
    if constexpr (F::kHasResidual) add_residual<Plan>(x, second);
  } else {
    from_rotated<Plan>(x, second);
  }
  RowRange<Plan>::fit(args, at, lane(), true, x);
  store_values(args.x.data, args.x_type, at.in_x, args.keep_rotated ? F::kStored : Plan::kHeadDim, x);
}

}  // namespace kv
