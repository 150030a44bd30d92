// dequantize_bulk_blocks: dequantizes whole blocks in one lane, for formats without a rotation or with one inside a
// block. A lane takes kValues neighbouring values of a row. The lanes of a warp then exchange values in shared memory,
// so that they write neighbouring bytes. kernels/codec/dequantize.cuh serves everything.
// SPDX-License-Identifier: MIT
#pragma once
#include "args/attention.cuh"
#include "kernels/codec/lane_rows.cuh"
#include "formats/number_rows.cuh"
#include "device/simt.cuh"
#include "formats/stored_row.cuh"

namespace kv {

template <class Plan>
KV_DEVICE void dequantize_bulk_blocks(const CodecArgs& args) {
  using F = typename Plan::F;
  constexpr int kValues = Plan::kValues, kOwners = Plan::kHeadDim / kValues, kBlocks = kValues / F::kBlock;
  constexpr int kLanes = Plan::kRowLanes;  // of a row; kOwners of them have values
  constexpr int kBytes = kBlocks * F::kCodeStride, kStageBytes = 32 * kValues * Plan::Words::kBytes;
  const u32 rows = u32(args.sequences) * args.heads * args.tokens;
  const i64 item = i64(block_x()) * Plan::kThreads + thread();
  // Lanes without a row, and without values, go on, because lanes store for each other.
  const bool has_row = item / kLanes < rows && item % kLanes < kOwners;
  const u32 row = item / kLanes < rows ? u32(item / kLanes) : rows - 1;
  const int row_lane = int(item % kLanes) < kOwners ? int(item % kLanes) : 0;
  const CodecRow at = codec_row(args, row);
  const StoredRow from = stored_row<F>(args.side, at.sequence, at.head, args.first_token + at.token);
  u32 words[(kBytes + 3) / 4];
  load_words<kBytes, unit_of_words(0, kBytes, 0)>(words, from.codes + row_lane * kBytes);
  u8 bytes[kBytes];
  KV_UNROLL
  for (int i = 0; i < kBytes; ++i) bytes[i] = u8(words[i / 4] >> i % 4 * 8);
  const StoredRow mine = {bytes, from.scales + row_lane * kBlocks * F::kScaleStride};
  float x[kValues];
  KV_UNROLL
  for (int i = 0; i < kValues; ++i) {
    x[i] = load_value<F>(mine, i);
    if constexpr (F::kHasTensorScale) x[i] *= args.tensor_scale;
  }
  Plan::Rotation::inverse_in_lane(x);
  RowRange<Plan>::fit(args, at, int(item % kLanes), has_row, x);
  store_lanes<typename Plan::Words>(args.x.data, has_row ? at.in_x + row_lane * kValues : -1, x, warp() * kStageBytes);
}

}  // namespace kv
