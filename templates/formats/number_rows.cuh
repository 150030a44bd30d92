// Dequantized rows in memory (f16, bf16 or f32), as callers pass them to quantize and get them from dequantize. One
// warp loads or stores a row: value i in lane i % 32, register i / 32.
// SPDX-License-Identifier: MIT
#pragma once
#include "args/attention.cuh"
#include "device/simt.cuh"

namespace kv {

// The row of a codec call that a warp takes. Rows are numbered with heads fastest, then tokens, then sequences.
struct CodecRow {
  u32 sequence, token, head;
  i64 in_x;  // where the row begins in x, in elements
};
KV_DEVICE CodecRow codec_row(const CodecArgs& args, u32 row) {  // rows fit 31 bits: the host checks
  const u32 heads = args.heads, tokens = args.tokens, of_token = row / heads, sequence = of_token / tokens;
  const u32 head = row - of_token * heads, token = of_token - sequence * tokens;
  return {sequence, token, head,
          sequence * args.x.sequence_stride + token * args.x.query_stride + head * args.x.head_stride};
}

// Brings a row into the range of the element type of x. Kernels that do have a form in kernels/codec/row_powers.cuh.
template <class Plan>
struct RowRange {
  template <int kValues>
  KV_DEVICE static void fit(const CodecArgs&, const CodecRow&, int, bool, float (&)[kValues]) {}
};

// Loads kCount values from element `from` on. The rest of x becomes zero.
template <int kCount, int kPerLane>
KV_DEVICE void load_values(const void* data, RowType type, i64 from, float (&x)[kPerLane]) {
  KV_UNROLL
  for (int e = 0; e < kPerLane; ++e) {
    const int i = e * 32 + lane();
    x[e] = 0.f;
    if (i >= kCount) continue;
    if (type == RowType::f32)
      x[e] = static_cast<const float*>(data)[from + i];
    else
      x[e] = float_of(static_cast<const u16*>(data)[from + i]);  // the bits; converted once all loads are under way
  }
  if (type == RowType::f32) return;
  KV_UNROLL
  for (int e = 0; e < kPerLane; ++e)
    x[e] = type == RowType::f16 ? f32_from_f16(bits_of(x[e])) : f32_from_bf16(bits_of(x[e]));
}

// Stores the first `count` values of x from element `to` on.
template <int kPerLane>
KV_DEVICE void store_values(void* data, RowType type, i64 to, int count, const float (&x)[kPerLane]) {
  KV_UNROLL
  for (int e = 0; e < kPerLane; ++e) {
    const int i = e * 32 + lane();
    if (i >= count) continue;
    if (type == RowType::f32)
      static_cast<float*>(data)[to + i] = x[e];
    else
      static_cast<u16*>(data)[to + i] = type == RowType::f16 ? f16_from_f32(x[e]) : bf16_from_f32(x[e]);
  }
}

}  // namespace kv
