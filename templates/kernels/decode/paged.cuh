// decode over paged caches: the tile loader of pages. A tile lies in one page, or has kPages whole ones. The page
// numbers of the next tile are read when the copies of this tile are issued, so nothing waits for them in the loop.
//
// Pages without a token that any query sees may be freed: their entries of the table are no page numbers. Tiles may
// reach into such pages, before the first page that is seen and after the last one, and teams stage tiles after a
// split's end. The nearest page that is seen stands for such a page; its tokens are masked there.
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
        first_page_(MaySeeNothing<Plan> ? split.seen.first / Side::kPageTokens : 0),
        last_page_(split.seen.end > split.seen.first ? (split.seen.end - 1) / Side::kPageTokens : 0),
        used_(split.seen.end > split.seen.first ? -1 : 0),
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

  // Reads the numbers of the tile's pages, or those of the nearest pages that are seen. A sequence of which no token is
  // seen reads entry 0 and uses page 0, of which it reads nothing.
  KV_DEVICE void look_up() {
    KV_UNROLL
    for (int i = 0; i < kPages; ++i) {
      int at = least(tile_ / kTilesOfPage * kPages + i, last_page_);
      if (MaySeeNothing<Plan> && at < first_page_) at = first_page_;
      page_[i] = pages_[at] & used_;
    }
  }

  const CacheSide& side_;
  const u8* scales_;  // scales of page 0, for this head
  const int* pages_;  // page numbers of the sequence
  int first_page_,    // the first page that is seen, along the sequence
      last_page_,     // the last one
      used_,          // -1, or 0 if no token of the sequence is seen: masks page numbers
      tile_;          // the warp's next tile
  i64 page_[kPages];  // its pages
};

// Prefetches nothing: the previous kernel may be writing the page tables.
template <class Plan, Paged Side>
KV_DEVICE void prefetch_side(const CacheSide&, const KvSplit&) {}

}  // namespace kv
