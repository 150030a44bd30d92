// decode over paged caches: where a warp's next tile comes from. A tile lies in one page, or has kPages whole ones.
// Their numbers are read when the tile before is asked for, so that nothing waits for them in the loop.
// SPDX-License-Identifier: MIT
#pragma once
#include "kernels/decode/stage_pages.cuh"
#include "kernels/decode/decode.cuh"

namespace kv {

template <class Plan, Paged Side>
struct Tiles<Plan, Side> {
  static constexpr int kTile = Plan::kTile, kWarps = Plan::kWarps;
  const u8* first_row;  // of page 0: rows are as far from their chunks of 16 bytes in every page
  i64 token_stride;
  bool is_aligned;

  KV_DEVICE Tiles(const CacheSide& side, const Part& part, int tile)
      : first_row(in_register(side.codes + Turn<Plan>(part.head).head * side.codes_head_stride)),
        token_stride(side.codes_token_stride),
        is_aligned(Side::kIsPlanar || kv::is_aligned<Side>(first_row, token_stride | side.codes_sequence_stride)),
        side_(side),
        scales_(in_register(side.scales + Turn<Plan>(part.head).head * side.scales_head_stride)),
        pages_(table_of<Side>(side).pages + part.sequence * table_of<Side>(side).row_stride),
        last_page_(part.length > 0 ? (part.length - 1) / Side::kPageTokens : 0),
        used_(part.length > 0 ? -1 : 0),
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

  // Behind the last page with tokens its number stands for others; a sequence without tokens has page 0. Nothing is
  // read of either.
  KV_DEVICE void look_up() {
    KV_UNROLL
    for (int i = 0; i < kPages; ++i) page_[i] = pages_[least(tile_ / kTilesOfPage * kPages + i, last_page_)] & used_;
  }

  const CacheSide& side_;
  const u8* scales_;
  const int* pages_;
  int last_page_, used_, tile_;
  i64 page_[kPages];
};

// Tables may be what the launch ahead writes.
template <class Plan, Paged Side>
KV_DEVICE void prefetch_side(const CacheSide&, const Part&) {}

}  // namespace kv
