// Loads whole blocks of a stored row into one lane, for formats without a rotation in layout planar. The lane gets the
// row's values from row_lane * kValues on, value i in register i, so nothing crosses lanes. store_lane_blocks of
// kernels/codec/quantize_bulk_blocks.cuh writes such values.
// SPDX-License-Identifier: MIT
#pragma once
#include "kernels/codec/lane_rows.cuh"
#include "device/simt.cuh"
#include "formats/stored_row.cuh"
#include "kernels/codec/quantize_bulk_blocks.cuh"

namespace kv {

template <class F, int kValues>
KV_DEVICE void load_lane_blocks(const StoredRow& from, int row_lane, float tensor_scale, float (&x)[kValues]) {
  constexpr int kBlocks = kValues / F::kBlock, kBytes = kBlocks * F::kCodeStride;
  u32 words[(kBytes + 3) / 4];
  load_words<kBytes, unit_of_words(0, kBytes, 0)>(words, from.codes + row_lane * kBytes);
  u8 bytes[kBytes];
  KV_UNROLL
  for (int i = 0; i < kBytes; ++i) bytes[i] = u8(words[i / 4] >> i % 4 * 8);
  const StoredRow mine = {bytes, from.scales + row_lane * kBlocks * F::kScaleStride};
  KV_UNROLL
  for (int i = 0; i < kValues; ++i) {
    x[i] = load_value<F>(mine, i);
    if constexpr (F::kHasTensorScale) x[i] *= tensor_scale;
  }
}

}  // namespace kv
