// Unaligned rows: rows whose size is no multiple of 16, at any even address. The aligned 16-byte chunks that hold a row
// are copied, and no others. Lanes load the aligned words around the bytes they want and shift them into place. In its
// slot a staged row begins at the same offset, modulo kSlotAlign bytes, as in memory:
//
//   kSlotAlign = 32   the chunks of a sector of the L2 stay in one sector (otherwise it is requested twice)
//   kSlotAlign = 16   in pages, which may be 16 bytes apart, and where rows would have bank conflicts; if shared memory
//                     leaves space for an L1 (kCachesInL1), lines stay there between the copies of their chunks
//
// SPDX-License-Identifier: MIT
#pragma once
#include "device/simt.cuh"

namespace kv {

// The most 16-byte chunks that a row touches: it begins at any even byte of its first one.
constexpr int chunks_of(int row_bytes) { return (row_bytes + 14 + 15) / 16; }
KV_DEVICE const u8* align_down(const u8* at) { return reinterpret_cast<const u8*>((i64)at & ~i64(15)); }

// The place of a row among eight in the even-odd order (kHasEvenOddOrder): even rows first, then odd ones. For rows
// whose neighbours would have bank conflicts.
template <bool kHasEvenOddOrder>
KV_DEVICE int slot_of(int row) {
  return kHasEvenOddOrder ? (row & ~7) | (row & 1) << 2 | (row >> 1 & 3) : row;
}

// Copies kLanes chunks of each group of eight rows, from chunk `begin` on; chunks are numbered row after row. With
// kLanes = 16 or 8 a warp takes two or four groups at once. A copy costs as much as the lines of memory that it
// touches, and neighbouring lanes touch the same ones. Strides are even, so a row begins at the same byte of its chunk
// as the row eight before it, and of its sector as the row sixteen before it.
template <class Side, int kRows, int kLanes, bool kIsWhole>
KV_DEVICE void stage_chunk_group(SharedAddress to, const u8* from, i64 token_stride, int valid_rows, int begin) {
  constexpr int kChunks = chunks_of(Side::kRowBytes), kStep = 8 * (32 / kLanes);  // rows
  constexpr bool kNeedsAll = (kChunks - 1) * 16 < Side::kRowBytes;
  constexpr u32 kHalf = Side::kSlotAlign - 16;
  const int chunk = begin + lane() % kLanes;
  const int row = lane() / kLanes * 8 + chunk / kChunks, at = chunk % kChunks * 16;
  const u8* const first_row = from + row * token_stride;
  const bool is_needed = kNeedsAll || at < int((i64)first_row & 15) + Side::kRowBytes;
  const SharedAddress slot = to + slot_of<Side::kHasEvenOddOrder>(row) * Side::kPitch + at;
  const u8* mine = align_down(first_row) + at;
  u32 half = u32((i64)first_row) & kHalf;
  KV_UNROLL_BY(kIsWhole ? 4 : 1)
  for (int first = 0; first < kRows;
       first += kStep, mine += kStep * token_stride, half ^= kStep * u32(token_stride) & kHalf) {
    const bool exists = kIsWhole || first + row < valid_rows;
    if (kRows % kStep == 0 || first + row < kRows)
      copy_async<16, Side::kCachesInL1>(slot + first * Side::kPitch + half, exists ? mine : align_down(from),
                                        exists && is_needed ? 16 : 0);
  }
}
template <class Side, int kRows, bool kIsWhole>
KV_DEVICE void stage_chunks(SharedAddress to, const u8* from, i64 token_stride, int valid_rows) {
  constexpr int kAll = 8 * chunks_of(Side::kRowBytes), kWhole = kAll / 32 * 32, kLeft = kAll - kWhole;
  KV_UNROLL_BY(kIsWhole && kWhole <= 64 ? 2 : 1)
  for (int begin = 0; begin < kWhole; begin += 32)
    stage_chunk_group<Side, kRows, 32, kIsWhole>(to, from, token_stride, valid_rows, begin);
  if constexpr (kLeft >= 16) stage_chunk_group<Side, kRows, 16, kIsWhole>(to, from, token_stride, valid_rows, kWhole);
  if constexpr (kLeft % 16 == 8)
    stage_chunk_group<Side, kRows, 8, kIsWhole>(to, from, token_stride, valid_rows, kWhole + kLeft - 8);
}

// Misalignment of a staged row: its start minus row x pitch, in bytes. Rows that differ by a multiple of sixteen have
// the same, so `row` may be any of them. Token-major heads have their own form (kernels/decode/stage_token_heads.cuh),
// which must be included before this one is used.
template <class Side>
KV_DEVICE u32 row_misalignment(const u8* first_row, i64 token_stride, int row) {
  static_assert(
      !requires { Side::kHeads; }, "kernels/decode/stage_token_heads.cuh comes too late");
  if constexpr (Side::kIsMisaligned)
    return ((u32((i64)first_row) + u32(row) * u32(token_stride)) & (Side::kSlotAlign - 1u)) +
           u32(slot_of<Side::kHasEvenOddOrder>(row) - row) * Side::kPitch;
  else
    return 0;
}

// The misalignment of the row eight behind one with misalignment `misalignment`.
template <class Side>
KV_DEVICE u32 upper_misalignment(u32 misalignment, i64 token_stride) {
  static_assert(
      !requires { Side::kHeads; }, "kernels/decode/stage_token_heads.cuh comes too late");
  if constexpr (Side::kIsMisaligned)
    return misalignment ^ (8 * u32(token_stride) & (Side::kSlotAlign - 16u));
  else
    return misalignment;
}

template <int kBy, int kAll>
KV_DEVICE void move_down(u32 (&v)[kAll], bool is_wanted) {
  KV_UNROLL
  for (int i = 0; i + kBy < kAll; ++i) v[i] = is_wanted ? v[i + kBy] : v[i];
}
// Shifts words down by `late` bytes, less than kUnit: w = the words from byte `late` of v on.
template <int kUnit, int kWords, int kAll>
KV_DEVICE void shift_into_place(u32 (&v)[kAll], u32 late, u32* w) {
  if constexpr (kUnit >= 16) move_down<2>(v, (late & 8) != 0);
  if constexpr (kUnit >= 8) move_down<1>(v, (late & 4) != 0);
  KV_UNROLL
  for (int i = 0; i < kWords; ++i) w[i] = shift_right(v[i], i + 1 < kAll ? v[i + 1] : 0, late % 4 * 8);
}

// Loads kBytes bytes from any byte on as little-endian words: the aligned kUnit-byte words that hold them, shifted into
// place.
template <int kUnit, int kBytes>
KV_DEVICE void load_unaligned(SharedAddress rows, u32 offset, u32* w) {
  constexpr int kLoads = (kBytes + 2 * (kUnit - 1)) / kUnit;
  const SharedAddress at = rows + (offset & ~u32(kUnit - 1));
  u32 v[kLoads * (kUnit / 4)];
  KV_UNROLL
  for (int i = 0; i < kLoads; ++i) {
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
