// Staged tiles of all heads of a token, which lie side by side in the cache (cache.token_heads):
//
//   global   head h of token t at codes + (t * kHeads + h) * kRowBytes
//   staged   as it lies in memory, kEighthBytes an eighth of the tile's tokens; behind every kCopyEighths of them is a gap of kCopyGap
//
// Row 8 q + g of a tile, as the parts of decode count rows, is token g * kTile / 8 + q: neighbouring lanes read
// neighbouring eighths, whose gaps the planner chooses against bank conflicts. So kPitch, from row to row, is an eighth
// of a token's bytes; the skew has the rest.
// SPDX-License-Identifier: MIT
#pragma once
#include "kernels/decode/unaligned_rows.cuh"

namespace kv {

template <class Side>
KV_DEVICE int eighth_at(int eighth) {
  return eighth * Side::kEighthBytes + eighth / Side::kCopyEighths * Side::kCopyGap;
}
// Of the head that the warp has. offset: where the side's tile stands, from where it would beside the other one.
template <class Side>
requires(Side::kHeads > 1) KV_DEVICE u32 row_skew(const u8*, i64 offset, int row) {
  return u32(warp() % Side::kHeads * Side::kRowBytes + eighth_at<Side>(row) - row * Side::kPitch) + u32(offset);
}
template <class Side>
requires(Side::kHeads > 1) KV_DEVICE u32 upper_skew(u32 skew, i64) { return skew; }

template <class Side>
constexpr int token_bytes() {
  return Side::kHeads * Side::kRowBytes;
}
// The token of a tile that stands in a row.
template <int kTile>
KV_DEVICE int token_of_row(int row) {
  return row % 8 * (kTile / 8) + row / 8;
}

// Zeros for one head of the tile's tokens from `valid` on.
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

}  // namespace kv
