// Staging: a tile of packed rows is copied from the cache to shared memory as raw bytes, asynchronously. Lanes then
// load their lane reads from there.
//
//   global   row of token t at codes + t x token stride    planar: dense, so the bytes of a tile are contiguous
//   staged   row of token t at t x kPitch + misalignment   kPitch is chosen by the planner against bank conflicts;
//                                                          misalignment is 0, or for rows that are copied by chunks
//                                                          that of kernels/decode/unaligned_rows.cuh
//
// Rows behind the last token are filled with zeros and never read from memory.
// SPDX-License-Identifier: MIT
#pragma once
#include "args/attention.cuh"
#include "device/type_list.cuh"
#include "device/simt.cuh"
#include "kernels/decode/unaligned_rows.cuh"

namespace kv {

KV_DEVICE int clamp_to(int v, int most) { return v < 0 ? 0 : v > most ? most : v; }

// Dense rows have neighbouring rows in the same banks. Where that would be a bank conflict, the 16-byte chunks of a
// tile are swizzled, alike every eight rows. Chunk x is stored at
//
//   kSwizzle > 0   x ^ (x >> kSwizzle & 3) << 1             chunks change places by pairs
//   kSwizzle < 0   x ^ (x >> 3 & (2^-kSwizzle - 1))         single chunks of a 128-byte line change places
//   kSwizzle = 0   x
//
// A copy asks the L2 twice for a sector (32 bytes) that goes to two sectors of shared memory. Any of these
// leaves the chunks of a sector in one sector.
template <int kSwizzle>
KV_DEVICE u32 swizzled(u32 byte) {
  if constexpr (kSwizzle > 0)
    return byte ^ (byte >> (kSwizzle + 4) & 3) << 5;
  else if constexpr (kSwizzle < 0)
    return byte ^ (byte >> 7 & ((1 << -kSwizzle) - 1)) << 4;
  else
    return byte;
}
// The number of bytes after which the swizzle repeats.
constexpr int swizzle_period(int swizzle) { return swizzle < 0 ? 128 << -swizzle : 64 << swizzle; }

// Copies have two forms. Whole tiles take straight-line code. The last tile of a sequence (kIsWhole false) takes code
// that checks of each unit whether it exists.

// Copies kBytes dense bytes (a multiple of 16), of which the first `valid` exist. from: the lane's first chunk.
template <int kBytes, int kSwizzle, bool kIsWhole>
KV_DEVICE void stage_dense(SharedAddress to, const u8* from, int valid) {
  constexpr bool kIsSameEachStep = 512 % swizzle_period(kSwizzle) == 0;  // then a step only adds to the lane's place
  const int mine = lane() * 16;
  if constexpr (kIsWhole) {
    KV_UNROLL_BY(8)
    for (int first = 0; first < kBytes; first += 512) {
      const u32 place = kIsSameEachStep ? first + swizzled<kSwizzle>(mine) : swizzled<kSwizzle>(first + mine);
      if (first + 512 <= kBytes || first + mine < kBytes) copy_async<16>(to + place, from + first, 16);
    }
  } else {
    KV_NO_UNROLL
    for (int at = mine; at < kBytes; at += 512)
      copy_async<16>(to + swizzled<kSwizzle>(at), from - mine + (at < valid ? at : 0), clamp_to(valid - at, 16));
  }
}

// Copies dense bytes to rows with a pitch. A warp copies 512 bytes a step, which are whole rows or a part of one, so
// everything but the lane's own place is known when the kernel is compiled.
template <int kRows, int kRowBytes, int kPitch, bool kIsWhole>
KV_DEVICE void stage_padded(SharedAddress to, const u8* from, int valid_rows) {
  static_assert(kRowBytes % 512 == 0 || 512 % kRowBytes == 0, "512 bytes must be whole rows or a part of one");
  constexpr int kBytes = kRows * kRowBytes;
  const int mine = lane() * 16, live = valid_rows * kRowBytes;
  const SharedAddress slot = to + mine / kRowBytes * kPitch + mine % kRowBytes;
  if constexpr (kIsWhole) {
    KV_UNROLL_BY(8)
    for (int first = 0; first < kBytes; first += 512)
      copy_async<16>(slot + first / kRowBytes * kPitch + first % kRowBytes, from + first, 16);
  } else {
    KV_NO_UNROLL
    for (int first = 0; first < kBytes; first += 512) {
      const bool exists = first + mine < live;
      copy_async<16>(slot + first / kRowBytes * kPitch + first % kRowBytes, from + (exists ? first : -mine),
                     exists ? 16 : 0);
    }
  }
}

// Copies kRows whole rows of kRowBytes. The bytes of a row, `from` and the stride are multiples of 16.
template <int kRows, int kRowBytes, int kPitch>
KV_DEVICE void stage_rows(SharedAddress to, const u8* from, i64 token_stride) {
  constexpr int kPerRow = kRowBytes / 16, kTotal = kRows * kPerRow;
  KV_UNROLL_BY(4)
  for (int first = 0; first < kTotal; first += 32) {
    const int i = first + lane(), row = i / kPerRow, at = i % kPerRow * 16;
    if (kTotal % 32 == 0 || i < kTotal) copy_async<16>(to + row * kPitch + at, from + row * token_stride + at, 16);
  }
}

// The slow copy, two bytes at a time: for the last tile, and for rows that an engine has placed at a lower alignment
// than their size allows.
template <int kRows, int kRowBytes, int kPitch>
KV_DEVICE void stage_unaligned_rows(SharedAddress to, const u8* from, i64 token_stride, int valid_rows) {
  constexpr int kPerRow = kRowBytes / 2;
  KV_UNROLL_BY(2)
  for (int i = lane(); i < kRows * kPerRow; i += 32) {
    const int row = i / kPerRow, at = i % kPerRow * 2;
    store_shared_u16(to + row * kPitch + at,
                     row < valid_rows ? *reinterpret_cast<const u16*>(from + row * token_stride + at) : u16(0));
  }
}

// May whole tiles take the straight-line copies?
template <class Side>
KV_DEVICE bool is_aligned(const u8* codes, i64 token_stride) {
  return Side::kIsPlanar || Side::kIsMisaligned || ((i64)codes | token_stride) % 16 == 0;
}

// Copies one side's tile of kTile tokens, the first `valid` of which exist, to the stage at `to`. codes and scales
// point at the tile's first row, in layout planar at the lane's 16 bytes of it.
template <class Side, int kTile, bool kIsWhole>
KV_DEVICE void stage_tile(SharedAddress to, i64 token_stride, const u8* codes, const u8* scales, int valid) {
  if constexpr (Side::kIsPlanar) {
    if constexpr (Side::kPitch == Side::kRowBytes)
      stage_dense<kTile * Side::kRowBytes, Side::kSwizzle, kIsWhole>(to, codes, valid * Side::kRowBytes);
    else
      stage_padded<kTile, Side::kRowBytes, Side::kPitch, kIsWhole>(to, codes, valid);
    if constexpr (Side::kScaleRowBytes > 0)
      stage_dense<kTile * Side::kScaleRowBytes, 0, kIsWhole>(to + Side::kScalesAt, scales,
                                                             valid * Side::kScaleRowBytes);
  } else if constexpr (Side::kIsMisaligned) {
    stage_chunks<Side, kTile, kIsWhole>(to, codes, token_stride, valid);
  } else if constexpr (kIsWhole) {
    stage_rows<kTile, Side::kRowBytes, Side::kPitch>(to, codes, token_stride);
  } else {
    stage_unaligned_rows<kTile, Side::kRowBytes, Side::kPitch>(to, codes, token_stride, valid);
  }
}

// Loads one field of a lane read as little-endian words w, aligned to its first code. rows: address of some eight rows
// of a staged tile. block: bytes from there to the stored block. row_lane: number of this lane among those that share
// the block.
template <class Plane, int kSwizzle>
KV_DEVICE void load_plane(SharedAddress rows, u32 block, int read, int row_lane, u32* w) {
  constexpr int kUnit = Plane::kUnit, kBytes = Plane::kLoadBytes, kStep = Plane::kIsUnaligned ? 1 : kUnit;
  constexpr bool kIsShifted = Plane::kLaneBits % (8 * kStep) != 0;  // the lane read starts inside a step
  u32 offset = block + Plane::kAt + read * Plane::kReadBytes;
  // 0: the lane loads words of its own; n: it loads those of the lane kWrap x n before it.
  const int shared_by = Plane::kWrap > 0 ? row_lane / Plane::kWrap : 0;
  if constexpr (Plane::kWrap > 0) row_lane %= Plane::kWrap;
  if constexpr (!Plane::kLoadsWholeField) offset += row_lane * Plane::kLaneBits / (8 * kStep) * kStep;
  static_assert(kSwizzle == 0 || kBytes <= 16, "a lane read lies in one chunk");
  const SharedAddress at = rows + swizzled<kSwizzle>(offset);
  if constexpr (Plane::kIsUnaligned) {
    load_unaligned<kUnit, kBytes>(rows, offset, w);
  } else if constexpr (kUnit == 16) {
    KV_UNROLL
    for (int i = 0; i < kBytes / 16; ++i) load_staged_u128(w + 4 * i, at + 16 * i);
  } else if constexpr (kUnit == 8) {
    KV_UNROLL
    for (int i = 0; i < kBytes / 8; ++i) load_staged_u64(w + 2 * i, at + 8 * i);
  } else if constexpr (kUnit == 4) {
    KV_UNROLL
    for (int i = 0; i < (kBytes + 3) / 4; ++i) w[i] = load_staged_u32(at + 4 * i);
  } else if constexpr (kUnit == 2) {
    KV_UNROLL
    for (int i = 0; i < Plane::kWords; ++i) {
      w[i] = load_staged_u16(at + 4 * i);
      if (4 * i + 2 < kBytes) w[i] |= load_staged_u16(at + 4 * i + 2) << 16;
    }
  } else {
    KV_UNROLL
    for (int i = 0; i < Plane::kWords; ++i) w[i] = 0;
    KV_UNROLL
    for (int i = 0; i < kBytes; ++i) w[i / 4] |= load_staged_u8(at + i) << 8 * (i % 4);
  }
  if constexpr (kIsShifted) {
    const u32 shift = Plane::kLoadsWholeField ? row_lane * Plane::kLaneBits : row_lane * Plane::kLaneBits % (8 * kStep);
    KV_UNROLL
    for (int i = 0; i < Plane::kWords; ++i) w[i] = shift_right(w[i], i + 1 < Plane::kWords ? w[i + 1] : 0, shift);
  }
  if constexpr (Plane::kWrap > 0) {
    KV_UNROLL
    for (int i = 0; i < Plane::kWords; ++i) w[i] >>= shared_by * Plane::kWrapBits;
  }
}

// The stored block, counted along the row, that has the codes of (group, row_lane).
template <class Section>
KV_DEVICE int block_of(int group, int row_lane) {
  return group * Section::kBlocks + (Section::kBlocks > 1 ? row_lane / Section::kLanesPerBlock : 0);
}

// Loads all words of one lane read. row: bytes from `rows` to the staged row.
template <class Section>
KV_DEVICE void load_codes(SharedAddress rows, u32 row, int group, int read, int row_lane,
                          u32 (&w)[Section::kReadWords]) {
  const u32 block = row + block_of<Section>(group, row_lane) * Section::kBlockStride;
  for_each(typename Section::Planes{}, [&](auto plane) {
    using Plane = decltype(plane);
    load_plane<Plane, Section::kSwizzle>(rows, block, read, row_lane % Section::kLanesPerBlock, w + Plane::kFirstWord);
  });
}

// The address of the scales of (token, group, row_lane) in a staged tile. scale_index: which of the block's scales a
// lane read uses.
template <class Side, class Section>
KV_DEVICE SharedAddress scales_of(SharedAddress stage, u32 misalignment, int token, int group, int row_lane) {
  return stage + misalignment + Side::kScalesAt + token * Side::kScalePitch +
         block_of<Section>(group, row_lane) * Section::kScaleStride;
}
template <class Section>
KV_DEVICE int scale_index(int read, int row_lane) {
  return (read * Section::kLanesPerBlock + row_lane % Section::kLanesPerBlock) * Section::kReadCodes /
         Section::kScaleGroup;
}

}  // namespace kv
