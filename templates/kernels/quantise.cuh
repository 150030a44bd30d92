// quantise: scale by channel, rotate, encode, pack and scatter, one warp a (sequence, token, head) row, in one pass. Value i of the
// row sits in lane i % 32, register i / 32, as rotations want it; formats/encode.cuh says what the bytes are.
// SPDX-License-Identifier: MIT
#pragma once
#include "core/args.cuh"
#include "core/rows.cuh"
#include "core/simt.cuh"
#include "formats/encode.cuh"
#include "formats/pack.cuh"

namespace kv {

template <class Plan>
KV_DEVICE void quantise(const CodecArgs& args) {
  using R = typename Plan::Encoder;
  using F = typename R::F;
  constexpr int kPerLane = F::kStored / 32;
  u8* const bytes = shared_bytes() + warp() * Plan::kWarpBytes;

  const i64 row = i64(block_x()) * Plan::kWarps + warp();
  if (row >= i64(args.sequences) * args.tokens * args.heads) return;  // the whole warp
  const i64 head = row % args.heads, token = row / args.heads % args.tokens, sequence = row / args.heads / args.tokens;
  const i64 slot = args.slots ? args.slots[sequence * args.tokens + token] : args.first_token + token;
  if (slot < 0) return;
  const i64 from = sequence * args.x.sequence_stride + token * args.x.query_stride + head * args.x.head_stride;

  float x[kPerLane], y[kPerLane];
  load_values<Plan::kHeadDim>(args.x.data, args.x_type, from, x);
  KV_UNROLL
  for (int e = 0; e < kPerLane; ++e) {
    x[e] = mul_rn(x[e], Plan::channel(e * 32 + lane()));
    y[e] = x[e];
  }
  R::Rotation::forward(y);
  if constexpr (R::kRoundsToBf16) {
    KV_UNROLL
    for (int e = 0; e < kPerLane; ++e) y[e] = f32_from_bf16(bf16_from_f32(y[e]));
  }
  Encoding<kPerLane> encoding;
  encode<R>(x, y, args.tensor_scale, encoding);
  const StoredRow to = stored_row<F>(args.side, sequence, head, slot);
  pack<R>(encoding, bytes, to);
  Plan::pad(to);
}

}  // namespace kv
