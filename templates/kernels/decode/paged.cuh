// decode over paged caches: the tile loader of pages. A tile lies in one page, or has kPages whole ones. The page
// numbers of the next tile are read when the copies of this tile are issued, so nothing waits for them in the loop.
// SPDX-License-Identifier: MIT
#pragma once
#include "kernels/decode/stage_pages.cuh"
#include "kernels/decode/decode.cuh"

namespace kv {

template <class Plan, Paged Side>
struct KvTileLoader<Plan, Side> {
  static constexpr int kTile = Plan::kTile, kWarps = Plan::kWarps;
  const u8* first_row;  // first row of page 0: rows have the same offset from their 16-byte chunk in every page
  i64 token_stride;     // bytes from row to row
  bool is_aligned;      // may whole tiles take the straight-line copies?

  KV_DEVICE KvTileLoader(const CacheSide& side, const KvSplit& split, int tile)
      : first_row(pin_register(side.codes + QueryChunk<Plan>(split.head).head * side.codes_head_stride)),
        token_stride(side.codes_token_stride),
        is_aligned(Side::kIsPlanar || kv::is_aligned<Side>(first_row, token_stride | side.codes_sequence_stride)),
        side_(side),
        scales_(pin_register(side.scales + QueryChunk<Plan>(split.head).head * side.scales_head_stride)),
        pages_(table_of<Side>(side).pages + split.sequence * table_of<Side>(side).row_stride),
        last_page_(split.length > 0 ? (split.length - 1) / Side::kPageTokens : 0),
        used_(split.length > 0 ? -1 : 0),
        tile_(tile) {
    look_up();
  }

  template <bool kIsWhole>
  KV_DEVICE void stage(SharedAddress to, int valid) const {
    const int place = tile_ % kTilesOfPage * kTile;
    KV_UNROLL
    for (int i = 0; i < kPages; ++i) {
      const u8* const codes = first_row + page_[i] * side_.codes_sequence_stride + place * token_stride;
      const u8* const scales = scales_ + page_[i] * side_.scales_sequence_stride + place * side_.scales_token_stride;
      stage_page<Side, kRows, kIsWhole>(to + i * kRows * Side::kPitch,
                                        to + Side::kScalesAt + i * kRows * Side::kScaleRowBytes, side_, codes, scales,
                                        kIsWhole ? kRows : clamp_to(valid - i * kRows, kRows));
    }
  }
  KV_DEVICE void advance() {
    tile_ += kWarps;
    look_up();
  }

 private:
  static constexpr int kRows = least(kTile, Side::kPageTokens), kPages = kTile / kRows,
                       kTilesOfPage = Side::kPageTokens / kRows;

  // Reads the numbers of the tile's pages. Behind the last page that has tokens, that page's number is used; a sequence
  // without tokens uses page 0. Nothing is read from either.
  KV_DEVICE void look_up() {
    KV_UNROLL
    for (int i = 0; i < kPages; ++i) page_[i] = pages_[least(tile_ / kTilesOfPage * kPages + i, last_page_)] & used_;
  }

  const CacheSide& side_;
  const u8* scales_;  // scales of page 0, for this head
  const int* pages_;  // page numbers of the sequence
  int last_page_,     // number of the last page with tokens, along the sequence
      used_,          // -1, or 0 if the sequence has no tokens: masks page numbers
      tile_;          // the warp's next tile
  i64 page_[kPages];  // its pages
};

// Prefetches nothing: the previous kernel may be writing the page tables.
template <class Plan, Paged Side>
KV_DEVICE void prefetch_side(const CacheSide&, const KvSplit&) {}

}  // namespace kv
