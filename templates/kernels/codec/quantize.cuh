// quantize: encodes rows and writes them to their slots in the cache. A warp takes one (sequence, token, head) row.
// It serves every format; bulk kernels serve some formats faster.
// SPDX-License-Identifier: MIT
#pragma once
#include "args/attention.cuh"
#include "formats/number_rows.cuh"
#include "device/simt.cuh"
#include "formats/write_row.cuh"

namespace kv {

template <class Plan>
KV_DEVICE void quantize(const CodecArgs& args) {
  u8* const bytes = shared_bytes() + warp() * Plan::kWarpBytes;

  const u32 row = u32(block_x()) * Plan::kWarps + warp();
  if (row >= u32(args.sequences) * args.tokens * args.heads) return;  // true of the whole warp
  const CodecRow at = codec_row(args, row);
  const i64 slot = args.slots ? args.slots[i64(at.sequence) * args.tokens + at.token] : args.first_token + at.token;
  if (slot < 0) return;
  write_row<Plan>(args.x.data, args.x_type, at.in_x, args.tensor_scale, bytes,
                  stored_row<typename Plan::Encoder::F>(args.side, at.sequence, at.head, slot));
}

}  // namespace kv
