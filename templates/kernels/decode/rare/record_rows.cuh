// Long rows in layout rows and in pages of rows: records of hundreds of bytes, a multiple of 16 but not of 32, and what
// comes by bulk copies (rare/bulk_rows.cuh). Where rows begin at multiples of 16, a row is copied as columns of 32, 16,
// 8 ... chunks of 16 bytes, so that no copy divides. With kKeepsSectors a staged row begins 0 or 16 bytes behind the
// start of its slot, at the same place modulo 32 as in memory: a sector of the L2 whose halves went to two sectors of
// shared memory would be requested twice.
//
// The fragment overloads functions of kernels/decode/stage_tile.cuh and unaligned_rows.cuh, and stands before what uses
// them.
// SPDX-License-Identifier: MIT
#pragma once
#include "device/copy_sectors.cuh"
#include "kernels/decode/stage_tile.cuh"

namespace kv {

template <class Side>
concept IsRecord = Side::kIsRecord;

// Where the slot of a row begins. slot_of() moves bits, so the slot of a sum without carries is the sum of the slots.
template <class Side>
KV_DEVICE u32 slot_at(int row) {
  return u32(slot_of<Side::kHasEvenOddOrder>(row)) * Side::kPitch;
}
// Where a row begins behind the start of its slot. first_row: the address of the row that is `row` before it. Slots of
// tiles begin at multiples of 32 bytes.
template <class Side>
KV_DEVICE u32 sector_offset(const u8* first_row, i64 token_stride, int row) {
  return Side::kKeepsSectors ? (u32((i64)first_row) + u32(row) * u32(token_stride) - slot_at<Side>(row)) & 16u : 0;
}

template <IsRecord Side>
KV_DEVICE u32 row_misalignment(const u8* first_row, i64 token_stride, int row) {
  return sector_offset<Side>(first_row, token_stride, row) + slot_at<Side>(row) - u32(row) * Side::kPitch;
}
template <IsRecord Side>
KV_DEVICE u32 upper_misalignment(u32 misalignment, i64 token_stride) {
  return Side::kKeepsSectors ? misalignment ^ (8 * u32(token_stride) & 16u) : misalignment;
}

// Copies kChunks chunks of each of kRows rows, kLanes of them by as many lanes at once. to, from: those of row 0.
template <class Side, int kRows, int kChunks, int kLanes = 32>
KV_DEVICE void stage_columns(SharedAddress to, const u8* from, i64 token_stride) {
  if constexpr (kChunks >= kLanes) {
    constexpr int kAtOnce = 32 / kLanes, kWhole = kChunks / kLanes * kLanes;  // rows at once; chunks of whole columns
    const int row = lane() / kLanes, at = lane() % kLanes * 16;
    const u8* source = from + row * token_stride + at;
    SharedAddress slots[4];  // of copies 0 to 3; those behind them have the same offsets
    KV_UNROLL
    for (int i = 0; i < 4; ++i)
      slots[i] = to + slot_at<Side>(row) + at + sector_offset<Side>(from, token_stride, row + i * kAtOnce);
    KV_UNROLL
    for (int first = 0; first < kRows; first += kAtOnce, source += kAtOnce * token_stride) {
      KV_UNROLL
      for (int chunk = 0; chunk < kWhole; chunk += kLanes)
        if (kRows % kAtOnce == 0 || first + row < kRows)
          copy_sector_async(slots[first / kAtOnce % 4] + slot_at<Side>(first) + chunk * 16, source + chunk * 16);
    }
    if constexpr (kChunks > kWhole)  // behind a multiple of 32 bytes, so with the same offsets
      stage_columns<Side, kRows, kChunks - kWhole, kLanes / 2>(to + kWhole * 16, from + kWhole * 16, token_stride);
  } else {
    stage_columns<Side, kRows, kChunks, kLanes / 2>(to, from, token_stride);
  }
}
// Copies rows at any even address, two bytes at a time. Rows behind the first `valid` are zeros.
template <class Side, int kRows>
KV_DEVICE void stage_halves(SharedAddress to, const u8* from, i64 token_stride, int valid) {
  constexpr int kPerRow = Side::kRowBytes / 2;
  KV_UNROLL_BY(2)
  for (int i = lane(); i < kRows * kPerRow; i += 32) {
    const int row = i / kPerRow, at = i % kPerRow * 2;
    store_shared_u16(to + slot_at<Side>(row) + sector_offset<Side>(from, token_stride, row) + at,
                     row < valid ? *reinterpret_cast<const u16*>(from + row * token_stride + at) : u16(0));
  }
}

template <IsRecord Side, int kTile, bool kIsWhole>
KV_DEVICE void stage_tile(SharedAddress to, i64 token_stride, const u8* codes, const u8*, int valid) {
  if constexpr (kIsWhole)
    stage_columns<Side, kTile, Side::kRowBytes / 16>(to, codes, token_stride);
  else
    stage_halves<Side, kTile>(to, codes, token_stride, valid);
}
// In place of that of kernels/decode/stage_pages.cuh.
template <IsRecord Side, int kRows, bool kIsWhole>
KV_DEVICE void stage_page(SharedAddress to, SharedAddress, const CacheSide& side, const u8* codes, const u8*,
                          int valid) {
  static_assert(!Side::kKeepsSectors, "pages may lie 16 bytes apart: a row's offset does not follow from its number");
  if constexpr (kIsWhole)
    stage_columns<Side, kRows, Side::kRowBytes / 16>(to, codes, side.codes_token_stride);
  else
    stage_halves<Side, kRows>(to, codes, side.codes_token_stride, valid);
}

}  // namespace kv
