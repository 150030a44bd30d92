// quantise: rotate, scale, encode, pack and scatter, one warp a (sequence, token, head) row, in one pass.
// Value i of the row sits in lane i % 32, register i / 32 (as rotations want it); codes meet in shared memory
// to be packed.
//
// The arithmetic is the format's own, step by step in fp32: where the last bit decides a stored byte nothing
// is contracted, so the amax formats give the same bytes as ggml and the norm formats differ from the
// double-precision codec only within 1e-6 of a bound.
// SPDX-License-Identifier: MIT
#pragma once
#include "core/args.cuh"
#include "core/simt.cuh"
#include "formats/encode.cuh"
#include "formats/stored.cuh"

namespace kv {

template <class Plan>
KV_DEVICE void quantise(const CodecArgs& args) {
  using F = typename Plan::F;
  constexpr int kPerLane = (Plan::kHeadDim + 31) / 32, kBlocks = Plan::kHeadDim / F::kBlock;
  u8* const codes = shared_bytes() + warp() * Plan::kWarpBytes;  // one byte a code
  u8* const scales = codes + Plan::kHeadDim;                     // little-endian halves

  const i64 row = i64(block_x()) * Plan::kWarps + warp();
  if (row >= i64(args.sequences) * args.tokens * args.heads) return;  // the whole warp
  const i64 head = row % args.heads, token = row / args.heads % args.tokens, sequence = row / args.heads / args.tokens;
  const i64 slot = args.slots ? args.slots[sequence * args.tokens + token] : args.first_token + token;
  if (slot < 0) return;
  const i64 from = sequence * args.x.sequence_stride + token * args.x.query_stride + head * args.x.head_stride;

  float x[kPerLane];
  KV_UNROLL
  for (int e = 0; e < kPerLane; ++e) {
    const int i = e * 32 + lane();
    x[e] = 0.f;
    if (i < Plan::kHeadDim)
      x[e] = args.x_is_f32 ? static_cast<const float*>(args.x.data)[from + i]
                           : f32_from_f16(static_cast<const u16*>(args.x.data)[from + i]);
  }

  const StoredRow to = stored_row<F>(args.side, sequence, head, slot);
  if constexpr (F::kIsPlain) {
    KV_UNROLL
    for (int e = 0; e < kPerLane; ++e)
      if (e * 32 + lane() < Plan::kHeadDim)
        reinterpret_cast<u16*>(to.codes)[e * 32 + lane()] = F::kIsBf16 ? bf16_from_f32(x[e]) : f16_from_f32(x[e]);
  } else {
    F::Encoder::template encode<F, typename Plan::Rotation>(x, codes, scales);
    sync_warp();
    for (int i = lane(); i < kBlocks * F::kCodeBytes; i += 32)
      to.codes[i64(i / F::kCodeBytes) * F::kCodeStride + i % F::kCodeBytes] =
          packed_byte<F>(codes + i / F::kCodeBytes * F::kBlock, i % F::kCodeBytes);
    if constexpr (F::kHasScale)
      for (int i = lane(); i < kBlocks * 2; i += 32) to.scales[i64(i / 2) * F::kScaleStride + i % 2] = scales[i];
    if constexpr (!F::kIsPlanar)
      for (int i = lane(); i < kBlocks * F::kBlockBytes; i += 32)
        if (F::is_padding(i % F::kBlockBytes)) (to.codes - F::kCodesAt)[i] = 0;
  }
}

}  // namespace kv
