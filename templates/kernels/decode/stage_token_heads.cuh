// Staged tiles of token-major heads: all heads of a token lie side by side in the cache (cache.token_heads), and a
// block copies them together.
//
//   global   head h of token t at codes + (t x kHeads + h) x kRowBytes
//   staged   as it lies in memory, kEighthBytes for each eighth of the tile's tokens; every kCopyEighths eighths are
//            one copy, and a gap of kCopyGap bytes follows
//
// Row 8 q + g of a tile, as decode counts rows, is token g x kTile / 8 + q, so neighbouring lanes read neighbouring
// eighths, whose gaps the planner chooses against bank conflicts. kPitch, from row to row, is an eighth of the bytes of
// a token; the misalignment holds the rest.
// SPDX-License-Identifier: MIT
#pragma once
#include "device/bulk_copy.cuh"
#include "kernels/decode/unaligned_rows.cuh"

namespace kv {

template <class Side>
KV_DEVICE int eighth_at(int eighth) {
  return eighth * Side::kEighthBytes + eighth / Side::kCopyEighths * Side::kCopyGap;
}
// The misalignment of a row of the warp's head. offset: bytes from where the side's tile would be, beside the other
// side's, to where it is.
template <class Side>
requires(Side::kHeads > 1) KV_DEVICE u32 row_misalignment(const u8*, i64 offset, int row) {
  return u32(warp() % Side::kHeads * Side::kRowBytes + eighth_at<Side>(row) - row * Side::kPitch) + u32(offset);
}
template <class Side>
requires(Side::kHeads > 1) KV_DEVICE u32 upper_misalignment(u32 misalignment, i64) { return misalignment; }

template <class Side>
constexpr int token_bytes() {
  return Side::kHeads * Side::kRowBytes;
}
// The token of a tile that is in a row.
template <int kTile>
KV_DEVICE int token_of_row(int row) {
  return row % 8 * (kTile / 8) + row / 8;
}

// Zeros one head's rows of the tile's tokens from `valid` on.
template <class Side, int kTile>
KV_DEVICE void clear_tokens(SharedAddress tile, int head, int valid) {
  constexpr int kEach = kTile / 8;
  KV_NO_UNROLL
  for (int token = valid; token < kTile; ++token) {
    const SharedAddress row =
        tile + eighth_at<Side>(token / kEach) + token % kEach * token_bytes<Side>() + head * Side::kRowBytes;
    KV_NO_UNROLL
    for (int at = lane() * 2; at < Side::kRowBytes; at += 64) store_shared_u16(row + at, 0);
  }
}
// In place of that of kernels/decode/rare/staged_stores.cuh.
template <class Side>
requires(Side::kHeads > 1) KV_DEVICE void end_stores(Side) {
  yield_to_copies();
  sync_warp();
}

}  // namespace kv
