// How the 32 codes of a lane lie in its words, kBits of them: packings that kernels/codec/bulk_encode.cuh writes and
// kernels/codec/bulk_decode.cuh reads, each in turns that cost it little. formats/fields.cuh has the same meanings,
// code by code.
//
//   word_at<Plan>(i)        of word i, from the lane's place in a group of a row on (codes_at of kernels/codec/bulk_tile.cuh)
//   pack(words, codes)      from eight codes a word, a nibble each
//   kEntries, first(entry), second(entry)     of a table over pairs: how many; the codes that an entry stands for
//   entry(words, k, mine)   where the one of pair k (codes 2 k and 2 k + 1) stands; entries are 256 bytes apart, mine: of the lane's copy
// SPDX-License-Identifier: MIT
#pragma once
#include "device/simt.cuh"

namespace kv {

// Eight nibbles to eight codes of kBits, packed.
template <int kBits>
KV_DEVICE u32 packed_eight(u32 nibbles) {
  if constexpr (kBits == 4) return nibbles;
  constexpr u32 kOne = (1u << kBits) - 1, kTwo = (1u << 2 * kBits) - 1, kFour = (1u << 4 * kBits) - 1;
  const u32 two = (nibbles & kOne * 0x01010101u) | (nibbles >> (4 - kBits) & (kOne << kBits) * 0x01010101u);
  const u32 four = (two & kTwo * 0x00010001u) | (two >> (8 - 2 * kBits) & (kTwo << 2 * kBits) * 0x00010001u);
  return (four & kFour) | (four >> (16 - 4 * kBits) & kFour << 4 * kBits);
}

// One field, a little-endian stream.
template <int kBits_>
struct StreamCodes {
  static constexpr int kBits = kBits_, kEntries = 1 << 2 * kBits;
  template <class Plan>
  KV_DEVICE static constexpr int word_at(int i) {
    return 4 * i;
  }
  KV_DEVICE static void pack(u32 (&words)[kBits], const u32 (&codes)[4]) {
    KV_UNROLL
    for (int i = 0; i < 4; ++i) {
      const u32 eight = packed_eight<kBits>(codes[i]);
      const int at = i * 8 * kBits;
      words[at / 32] |= eight << at % 32;
      if (at % 32 + 8 * kBits > 32) words[at / 32 + 1] |= eight >> (32 - at % 32);
    }
  }
  KV_DEVICE static int first(int entry) { return entry & ((1 << kBits) - 1); }
  KV_DEVICE static int second(int entry) { return entry >> kBits; }
  KV_DEVICE static u32 entry(const u32 (&words)[kBits], int k, u32 mine) {
    if constexpr (kBits == 4) return permute(words[k / 4], mine, 0x5504u | u32(k % 4) << 4);
    constexpr int kPair = 2 * kBits;
    const int at = k * kPair;
    u32 index = words[at / 32] >> at % 32;
    if (at % 32 + kPair > 32) index |= words[at / 32 + 1] << (32 - at % 32);
    return (index & ((1u << kPair) - 1)) * 256 + mine;
  }
};

// NibbleField of a block of 128: three words, of which the first two have codes of 3 bits and spare bits that are the
// third's.
struct NibbleCodes {
  static constexpr int kBits = 3, kEntries = 256;
  template <class Plan>
  KV_DEVICE static constexpr int word_at(int i) {
    return 16 * i;
  }
  KV_DEVICE static void pack(u32 (&words)[kBits], const u32 (&codes)[4]) {
    KV_UNROLL
    for (int h = 0; h < 2; ++h) {
      words[h] = codes[2 * h] | (codes[2 * h + 1] & 0x44444444u) << 1;
      words[2] |= (codes[2 * h + 1] & 0x33333333u) << 2 * h;
    }
  }
  KV_DEVICE static int first(int entry) { return entry & 7; }
  KV_DEVICE static int second(int entry) { return entry >> 4 & 7; }
  KV_DEVICE static u32 entry(const u32 (&words)[kBits], int k, u32 mine) {
    const int h = k / 8;
    const u32 codes = k % 8 < 4 ? words[h] : select_bits(0x33333333u, words[2] >> 2 * h, words[h] >> 1);
    return permute(codes, mine, 0x5504u | u32(k % 4) << 4);
  }
};

// Codes of 3 bits in two fields: two words of low pairs of bits; Plan::kHighAt behind them, kHighStride a lane more,
// one of top bits.
struct SplitCodes {
  static constexpr int kBits = 3, kEntries = 256;
  template <class Plan>
  KV_DEVICE static int word_at(int i) {
    return i < 2 ? 4 * i : Plan::kHighAt + (lane() & 3) * Plan::kHighStride;
  }
  KV_DEVICE static void pack(u32 (&words)[kBits], const u32 (&codes)[4]) {
    u32 low[4], high[4];  // of eight codes: bytes 0 and 2; byte 3
    KV_UNROLL
    for (int i = 0; i < 4; ++i) {
      const u32 two = select_bits(0x03030303u, codes[i], codes[i] >> 2);
      low[i] = select_bits(0x000f000fu, two, two >> 4);
      // Pairs of bits at 0, 8, 16 and 24: the product has them next to each other from 24 on.
      high[i] = (select_bits(0x01010101u, codes[i] >> 2, codes[i] >> 5) & 0x03030303u) * 0x01041040u;
    }
    KV_UNROLL
    for (int h = 0; h < 2; ++h) words[h] = permute(low[2 * h], low[2 * h + 1], 0x6420);
    words[2] = permute(permute(high[0], high[1], 0x0073), permute(high[2], high[3], 0x0073), 0x5410);
  }
  // Low bits of both codes, then their top bits. What is above them in a byte may be anything.
  KV_DEVICE static int first(int entry) { return (entry & 3) | (entry >> 4 & 1) << 2; }
  KV_DEVICE static int second(int entry) { return (entry >> 2 & 3) | (entry >> 5 & 1) << 2; }
  KV_DEVICE static u32 entry(const u32 (&words)[kBits], int k, u32 mine) {
    const int h = k / 8;
    // Byte b: top bits of the codes of byte b of words[h], in its low nibble.
    const u32 two = permute(words[2], 0, h == 0 ? 0x1100 : 0x3322), tops = select_bits(0x000f000fu, two, two >> 4);
    const u32 entries =
        k % 2 == 0 ? select_bits(0x0f0f0f0fu, words[h], tops << 4) : select_bits(0x0f0f0f0fu, words[h] >> 4, tops << 2);
    return permute(entries, mine, 0x5504u | u32(k % 8 / 2) << 4);
  }
};

}  // namespace kv
