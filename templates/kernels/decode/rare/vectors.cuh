// Unpacks vectors of the lattice E8 (formats/rare/vectors.cuh) to fp16, with the interface of
// kernels/decode/unpack_f16.cuh: the eight values of two bytes at once.
//
// The table has two words for each root: its entries times 4, plus 128, a byte each. The sum of a root and an axis adds
// 1 to one byte or subtracts it, and no byte overflows. Bytes become halves by way of the halves 1024 + byte. A product
// with the radius is rounded to an integer where it is added to 1536, as fp16 has no bits below 1 from 1024 to 2048.
// Behind the roots the table has the radii, as half2.
// SPDX-License-Identifier: MIT
#pragma once
#include "formats/rare/vectors.cuh"
#include "kernels/decode/unpack_f16.cuh"

namespace kv {

template <class S>
struct VectorEntries {
  static constexpr int kRadiiAt = 256, kEntries = kRadiiAt + kVectorRadii, kEntryWords = 2;
  KV_DEVICE static u32 entry(int i, int word) {
    if (i >= kRadiiAt) return S::half_value(i - kRadiiAt) * 0x10001u;
    u32 bytes = 0;
    for (int j = 0; j < 4; ++j) bytes |= u32(128 + root_entry(i, 4 * word + j)) << 8 * j;
    return bytes;
  }
};

template <class S>
struct VectorRead {
  static constexpr int kVectors = S::kReadCodes / kVectorDim;  // of a lane read
  static_assert(S::kReadCodes % kVectorDim == 0, "a lane reads whole vectors");

  KV_DEVICE static void row(const u32 (&w)[S::kReadWords], u32 (&h)[S::kReadCodes / 2], Table table) {
    KV_UNROLL
    for (int i = 0; i < kVectors; ++i) values(w[i / 2] >> i % 2 * 16, h + 4 * i, table);
  }
  KV_DEVICE static void column(const u32 (&w0)[S::kReadWords], const u32 (&w1)[S::kReadWords], u32 (&h)[S::kReadCodes],
                               Table table) {
    KV_UNROLL
    for (int i = 0; i < kVectors; ++i) {
      u32 first[4], second[4];  // of two tokens
      values(w0[i / 2] >> i % 2 * 16, first, table);
      values(w1[i / 2] >> i % 2 * 16, second, table);
      KV_UNROLL
      for (int j = 0; j < 4; ++j) {
        h[8 * i + 2 * j] = permute(first[j], second[j], 0x5410);
        h[8 * i + 2 * j + 1] = permute(first[j], second[j], 0x7632);
      }
    }
  }

 private:
  // Unpacks the code in the lower half of a word: eight values in order, two a half2.
  KV_DEVICE static void values(u32 code, u32* h, Table table) {
    constexpr u32 kBytesToHalves = 0x64646464u, kZero = 0x64806480u, kWholes = 0x66006600u;  // 1024 + 128; 1536
    u32 bytes[2];
    load_table_u64<S::kTableAt>(bytes, entry_at<S>(table.mine_of_two, code, 0));
    const u32 radius = load_table<S::kTableAt + VectorEntries<S>::kRadiiAt * S::kTableStride>(
        entry_at<S>(table.mine_of_two, code >> 12 & 15u, 0));
    const u32 one = 1u << (code >> 6 & 24u), step = code & 0x100u ? 0u - one : one;
    bytes[0] += code & 0x800u ? 0u : step;
    bytes[1] += code & 0x800u ? step : 0u;
    KV_UNROLL
    for (int j = 0; j < 4; ++j) {
      const u32 wholes = sub_f16x2(permute(bytes[j / 2], kBytesToHalves, j % 2 ? 0x4342 : 0x4140), kZero);
      h[j] = sub_f16x2(fma_f16x2(wholes, radius, kWholes), kWholes);
    }
  }
};

}  // namespace kv
