// Rows whose size is no multiple of 16, at any even address: the aligned chunks of 16 bytes that hold a row are copied,
// no others; lanes load the aligned pieces around the bytes they want, and shift them into place. In its slot a row
// begins where it does in the kSlotAlign bytes of memory around its begin: 32, so that the chunks of a sector of the L2
// stay in one (else it is asked for twice). Of pages, which may be 16 bytes apart, and where rows would meet in banks:
// 16, and if the plan leaves room (kKeepsLines), lines stay in the L1 between their copies.
// SPDX-License-Identifier: MIT
#pragma once
#include "device/simt.cuh"

namespace kv {

constexpr int chunks_of(int row_bytes) { return (row_bytes + 14 + 15) / 16; }  // at most
KV_DEVICE const u8* align_down(const u8* at) { return reinterpret_cast<const u8*>((i64)at & ~i64(15)); }

// Slots of rows whose neighbours would meet in the same banks: even rows of eight first, then odd ones.
template <bool kIsDealt>
KV_DEVICE int slot_of(int row) {
  return kIsDealt ? (row & ~7) | (row & 1) << 2 | (row >> 1 & 3) : row;
}

// Of the chunks of every eight rows, row after row, kLanes from number `begin` on: 32, or fewer, of several eights at
// once. Lines of memory are what a copy costs, and neighbouring lanes meet in them. Strides are even, so eight rows
// further on a row begins at the same place of its chunk, and sixteen further on of its sector.
template <class Side, int kRows, int kLanes, bool kIsWhole>
KV_DEVICE void stage_turn(SharedAddress to, const u8* from, i64 token_stride, int valid_rows, int begin) {
  constexpr int kChunks = chunks_of(Side::kRowBytes), kStep = 8 * (32 / kLanes);  // rows
  constexpr bool kNeedsAll = (kChunks - 1) * 16 < Side::kRowBytes;
  constexpr u32 kHalf = Side::kSlotAlign - 16;
  const int chunk = begin + lane() % kLanes;
  const int row = lane() / kLanes * 8 + chunk / kChunks, at = chunk % kChunks * 16;
  const u8* const first_row = from + row * token_stride;
  const bool is_needed = kNeedsAll || at < int((i64)first_row & 15) + Side::kRowBytes;
  const SharedAddress slot = to + slot_of<Side::kIsDealt>(row) * Side::kPitch + at;
  const u8* mine = align_down(first_row) + at;
  u32 half = u32((i64)first_row) & kHalf;
  KV_UNROLL_BY(kIsWhole ? 4 : 1)
  for (int first = 0; first < kRows;
       first += kStep, mine += kStep * token_stride, half ^= kStep * u32(token_stride) & kHalf) {
    const bool exists = kIsWhole || first + row < valid_rows;
    if (kRows % kStep == 0 || first + row < kRows)
      copy_async<16, Side::kKeepsLines>(slot + first * Side::kPitch + half, exists ? mine : align_down(from),
                                        exists && is_needed ? 16 : 0);
  }
}
template <class Side, int kRows, bool kIsWhole>
KV_DEVICE void stage_chunks(SharedAddress to, const u8* from, i64 token_stride, int valid_rows) {
  constexpr int kAll = 8 * chunks_of(Side::kRowBytes), kWhole = kAll / 32 * 32, kLeft = kAll - kWhole;
  KV_UNROLL_BY(kIsWhole && kWhole <= 64 ? 2 : 1)
  for (int begin = 0; begin < kWhole; begin += 32)
    stage_turn<Side, kRows, 32, kIsWhole>(to, from, token_stride, valid_rows, begin);
  if constexpr (kLeft >= 16) stage_turn<Side, kRows, 16, kIsWhole>(to, from, token_stride, valid_rows, kWhole);
  if constexpr (kLeft % 16 == 8)
    stage_turn<Side, kRows, 8, kIsWhole>(to, from, token_stride, valid_rows, kWhole + kLeft - 8);
}

// Bytes from where a row of a tile would stand, were there no more to it, to where it begins. row: any that is as far
// from `first_row` as this one, or sixteen more or less. Heads of a token have a form of their own, which must have
// been seen where this one is called.
template <class Side>
KV_DEVICE u32 row_skew(const u8* first_row, i64 token_stride, int row) {
  static_assert(
      !requires { Side::kHeads; }, "kernels/decode/stage_token_heads.cuh comes too late");
  if constexpr (Side::kIsSkewed)
    return ((u32((i64)first_row) + u32(row) * u32(token_stride)) & (Side::kSlotAlign - 1u)) +
           u32(slot_of<Side::kIsDealt>(row) - row) * Side::kPitch;
  else
    return 0;
}

// Of the row eight further on than one with `skew`.
template <class Side>
KV_DEVICE u32 upper_skew(u32 skew, i64 token_stride) {
  static_assert(
      !requires { Side::kHeads; }, "kernels/decode/stage_token_heads.cuh comes too late");
  if constexpr (Side::kIsSkewed)
    return skew ^ (8 * u32(token_stride) & (Side::kSlotAlign - 16u));
  else
    return skew;
}

template <int kBy, int kAll>
KV_DEVICE void move_down(u32 (&v)[kAll], bool is_wanted) {
  KV_UNROLL
  for (int i = 0; i + kBy < kAll; ++i) v[i] = is_wanted ? v[i + kBy] : v[i];
}
// Words from byte `late` of v on, which is less than kUnit.
template <int kUnit, int kWords, int kAll>
KV_DEVICE void shift_into_place(u32 (&v)[kAll], u32 late, u32* w) {
  if constexpr (kUnit >= 16) move_down<2>(v, (late & 8) != 0);
  if constexpr (kUnit >= 8) move_down<1>(v, (late & 4) != 0);
  KV_UNROLL
  for (int i = 0; i < kWords; ++i) w[i] = shift_right(v[i], i + 1 < kAll ? v[i + 1] : 0, late % 4 * 8);
}

// kBytes bytes from any byte on, as little-endian words: the aligned pieces of kUnit bytes that hold them, shifted into
// place.
template <int kUnit, int kBytes>
KV_DEVICE void load_window(SharedAddress rows, u32 offset, u32* w) {
  constexpr int kPieces = (kBytes + 2 * (kUnit - 1)) / kUnit;
  const SharedAddress at = rows + (offset & ~u32(kUnit - 1));
  u32 v[kPieces * (kUnit / 4)];
  KV_UNROLL
  for (int i = 0; i < kPieces; ++i) {
    if constexpr (kUnit == 16)
      load_staged_u128(v + 4 * i, at + 16 * i);
    else if constexpr (kUnit == 8)
      load_staged_u64(v + 2 * i, at + 8 * i);
    else
      v[i] = load_staged_u32(at + 4 * i);
  }
  shift_into_place<kUnit, (kBytes + 3) / 4>(v, offset % kUnit, w);
}

}  // namespace kv
