// Staging from pages: a tile's rows are copied from one page at a time, at any stride between rows, to the places where
// stage_tile.cuh would put them.
// SPDX-License-Identifier: MIT
#pragma once
#include "kernels/decode/stage_tile.cuh"
#include "formats/page_tables.cuh"

namespace kv {

constexpr int least(int a, int b) { return a < b ? a : b; }

// How a warp copies kRows rows: kUnit bytes a lane, kAcross lanes along a row, kDown rows at once. Rows that are not a
// multiple of 16 bytes take units of their largest power of two.
template <int kRows, int kRowBytes>
struct RowCopies {
  static constexpr int kUnit = kRowBytes % 16 == 0 ? 16 : kRowBytes & -kRowBytes;
  static constexpr int kPerRow = kRowBytes / kUnit, kAcross = least(kPerRow, 32);
  static constexpr int kDown = least(1 << page_bits(32 / kAcross), kRows);
  static constexpr bool kTakesAllLanes = kAcross * kDown == 32;
};

// Copies one unit. Asynchronous copies have 4, 8 or 16 bytes; units of 1 and 2 bytes are copied at once.
template <int kUnit>
KV_DEVICE void stage_unit(SharedAddress to, const u8* from, bool exists) {
  if constexpr (kUnit >= 4)
    copy_async<kUnit>(to, from, exists ? kUnit : 0);
  else if constexpr (kUnit == 2)
    store_shared_u16(to, exists ? *reinterpret_cast<const u16*>(from) : u16(0));
  else
    store_shared_u8(to, exists ? *from : u8(0));
}

// Copies kRows rows from `from` on, the first valid_rows of which exist.
template <int kRows, int kRowBytes, int kPitch, int kSwizzle, bool kIsWhole>
KV_DEVICE void stage_strided(SharedAddress to, const u8* from, i64 stride, int valid_rows) {
  using Copies = RowCopies<kRows, kRowBytes>;
  constexpr int kUnit = Copies::kUnit, kAcross = Copies::kAcross, kDown = Copies::kDown;
  constexpr bool kIsSameEachStep =
      kDown * kPitch % swizzle_period(kSwizzle) == 0;  // then a step only adds to the lane's place
  const int row = lane() / kAcross, at = lane() % kAcross * kUnit;
  if (!Copies::kTakesAllLanes && row >= kDown) return;
  const u8* mine = from + row * stride + at;
  KV_UNROLL_BY(kIsWhole ? 8 : 1)
  for (int first = 0; first < kRows; first += kDown, mine += kDown * stride) {
    const bool exists = kIsWhole || first + row < valid_rows;
    KV_UNROLL
    for (int across = 0; across < kRowBytes; across += kAcross * kUnit) {
      const int place = row * kPitch + at + across;
      const u32 slot =
          kIsSameEachStep ? first * kPitch + swizzled<kSwizzle>(place) : swizzled<kSwizzle>(first * kPitch + place);
      if (kRowBytes % (kAcross * kUnit) == 0 || at + across < kRowBytes)
        stage_unit<kUnit>(to + slot, exists ? mine + across : from, exists);
    }
  }
}

// Copies the kRows rows of one page of a tile. codes, scales: of the first row. to: address of the page's first row in
// the stage; scales_to: of its scales.
template <class Side, int kRows, bool kIsWhole>
KV_DEVICE void stage_page(SharedAddress to, SharedAddress scales_to, const CacheSide& side, const u8* codes,
                          const u8* scales, int valid_rows) {
  constexpr int kScaleBytes = Side::kScaleRowBytes;
  if constexpr (Side::kIsPlanar) {
    stage_strided<kRows, Side::kRowBytes, Side::kPitch, Side::kSwizzle, kIsWhole>(to, codes, side.codes_token_stride,
                                                                                  valid_rows);
    if constexpr (kScaleBytes > 0 && kScaleBytes < 16 && kRows * kScaleBytes % 16 == 0) {
      if (side.scales_token_stride == kScaleBytes)
        return stage_dense<kRows * kScaleBytes, 0, kIsWhole>(scales_to, scales + lane() * 16, valid_rows * kScaleBytes);
    }
    if constexpr (kScaleBytes > 0)
      stage_strided<kRows, kScaleBytes, kScaleBytes, 0, kIsWhole>(scales_to, scales, side.scales_token_stride,
                                                                  valid_rows);
  } else if constexpr (Side::kIsMisaligned) {
    stage_chunks<Side, kRows, kIsWhole>(to, codes, side.codes_token_stride, valid_rows);
  } else if constexpr (kIsWhole) {
    stage_rows<kRows, Side::kRowBytes, Side::kPitch>(to, codes, side.codes_token_stride);
  } else {
    stage_unaligned_rows<kRows, Side::kRowBytes, Side::kPitch>(to, codes, side.codes_token_stride, valid_rows);
  }
}

}  // namespace kv
