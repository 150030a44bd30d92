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

  const u32 row = u32(block_x()) * Plan::kWarps + warp();
  if (row >= u32(args.sequences) * args.tokens * args.heads) return;  // the whole warp
  const CodecRow at = codec_row(args, row);
  const i64 slot = args.slots ? args.slots[i64(at.sequence) * args.tokens + at.token] : args.first_token + at.token;
  if (slot < 0) return;

  float x[kPerLane], y[kPerLane];
  load_values<Plan::kHeadDim>(args.x.data, args.x_type, at.in_x, x);
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
  const StoredRow to = stored_row<F>(args.side, at.sequence, at.head, slot);
  pack<R>(encoding, bytes, to);
  Plan::pad(to);
}

}  // namespace kv
