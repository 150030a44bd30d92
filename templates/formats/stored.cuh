// Stored rows, value by value: where code i and its scale lie, and what they mean. The readable decoder; reference,
// quantise and dequantise use it (the tensor-core families read the same bytes through core/pairs.cuh).
//
//   layout rows      a row is whole blocks of kBlockBytes, codes at kCodesAt and the scale at kScaleAt of each
//   layout planar    the codes row is kCodeBytes a block, the scales row a half a block
// SPDX-License-Identifier: MIT
#pragma once
#include "core/args.cuh"
#include "core/simt.cuh"

namespace kv {

// The bytes of one (sequence, head, token).
struct StoredRow {
  u8* codes;
  u8* scales;
};

template <class F>
KV_DEVICE StoredRow stored_row(const CacheSide& side, i64 sequence, i64 head, i64 token) {
  u8* const codes = side.codes + sequence * side.codes_sequence_stride + head * side.codes_head_stride +
                    token * side.codes_token_stride;
  if constexpr (F::kIsPlanar)
    return {codes, side.scales + sequence * side.scales_sequence_stride + head * side.scales_head_stride +
                       token * side.scales_token_stride};
  else
    return {codes + F::kCodesAt, codes + F::kScaleAt};
}

// Bit position of code i of a block.
template <class F>
KV_DEVICE int code_bit(int i) {
  if constexpr (F::kIsSplit)
    return i % (F::kBlock / 2) * 8 + i / (F::kBlock / 2) * 4;
  else
    return i * F::kBits;
}

template <class F>
KV_DEVICE u32 load_code(const u8* block, int i) {
  const int bit = code_bit<F>(i);
  u32 window = block[bit / 8];
  if (bit % 8 + F::kBits > 8) window |= u32(block[bit / 8 + 1]) << 8;
  return (window >> bit % 8 & ((1u << F::kBits) - 1)) ^ F::kCodeXor;
}

template <class F>
KV_DEVICE float load_value(const StoredRow& row, int i) {
  const u8* const block = row.codes + i64(i / F::kBlock) * F::kCodeStride;
  if constexpr (F::kIsPlain) {
    const u32 bits = u32(block[0]) | u32(block[1]) << 8;
    return F::kIsBf16 ? f32_from_bf16(bits) : f32_from_f16(bits);
  } else {
    const float value = F::value(load_code<F>(block, i % F::kBlock));
    if constexpr (!F::kHasScale) return value;
    const u8* const scale = row.scales + i64(i / F::kBlock) * F::kScaleStride;
    return value * f32_from_f16(u32(scale[0]) | u32(scale[1]) << 8);
  }
}

}  // namespace kv
