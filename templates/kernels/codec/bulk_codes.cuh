// Packings: how the 32 codes of a lane lie in its kBits stored words. kernels/codec/bulk_encode.cuh packs with them and
// kernels/codec/bulk_decode.cuh unpacks. formats/fields.cuh states the same packings code by code.
//
// Decoding looks up two neighbouring codes (a pair) at once, in a table with an entry for each pair. A packing chooses
// the order of bits in which the entry's number is cheapest to compute, and first() and second() undo that order when
// the table is filled. Entries are 256 bytes apart, because each lane has a copy of its own.
//
//   word_at<Plan>(i)              byte offset of word i from the lane's place in a stored group (codes_at)
//   pack(words, codes)            packs four words of eight codes, one a nibble
//   kEntries                      entries of the table over pairs
//   first(entry), second(entry)   the two codes of an entry
//   entry(words, k, mine)         byte offset of the entry of pair k (codes 2 k and 2 k + 1); mine: offset of the
//                                 lane's copy
// SPDX-License-Identifier: MIT
#pragma once
#include "device/simt.cuh"

namespace kv {

// Packs eight codes, one a nibble, to eight codes of kBits.
template <int kBits>
KV_DEVICE u32 packed_eight(u32 nibbles) {
  if constexpr (kBits == 4) return nibbles;
  constexpr u32 kOne = (1u << kBits) - 1, kTwo = (1u << 2 * kBits) - 1, kFour = (1u << 4 * kBits) - 1;
  const u32 two = (nibbles & kOne * 0x01010101u) | (nibbles >> (4 - kBits) & (kOne << kBits) * 0x01010101u);
  const u32 four = (two & kTwo * 0x00010001u) | (two >> (8 - 2 * kBits) & (kTwo << 2 * kBits) * 0x00010001u);
  return (four & kFour) | (four >> (16 - 4 * kBits) & kFour << 4 * kBits);
}

// All bits of a code in one field, a little-endian bit stream.
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

// NibbleField of a block of 128 (Field::is_nibbles of generator/formats/format.hpp). A lane has three words. The first
// two hold eight codes each, one a nibble. Each of these nibbles has a spare bit, which is the top bit of one of the
// other 16 codes; the third word has the low two bits of those.
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

// Codes of 3 bits in two fields. A lane has two words with the low two bits of its codes, and one word with the top
// bits. The latter stands Plan::kHighAt bytes behind them, plus kHighStride bytes for each lane.
struct SplitCodes {
  static constexpr int kBits = 3, kEntries = 256;
  template <class Plan>
  KV_DEVICE static int word_at(int i) {
    return i < 2 ? 4 * i : Plan::kHighAt + (lane() & 3) * Plan::kHighStride;
  }
  KV_DEVICE static void pack(u32 (&words)[kBits], const u32 (&codes)[4]) {
    // For each eight codes: their low bits in bytes 0 and 2 of low[i], their top bits in byte 3 of high[i].
    u32 low[4], high[4];
    KV_UNROLL
    for (int i = 0; i < 4; ++i) {
      const u32 two = select_bits(0x03030303u, codes[i], codes[i] >> 2);
      low[i] = select_bits(0x000f000fu, two, two >> 4);
      // The pairs of bits at 0, 8, 16 and 24 are next to each other, from bit 24 on, in the product.
      high[i] = (select_bits(0x01010101u, codes[i] >> 2, codes[i] >> 5) & 0x03030303u) * 0x01041040u;
    }
    KV_UNROLL
    for (int h = 0; h < 2; ++h) words[h] = permute(low[2 * h], low[2 * h + 1], 0x6420);
    words[2] = permute(permute(high[0], high[1], 0x0073), permute(high[2], high[3], 0x0073), 0x5410);
  }
  // An entry's number has the low bits of both codes, then their top bits. The bits above may be anything.
  KV_DEVICE static int first(int entry) { return (entry & 3) | (entry >> 4 & 1) << 2; }
  KV_DEVICE static int second(int entry) { return (entry >> 2 & 3) | (entry >> 5 & 1) << 2; }
  KV_DEVICE static u32 entry(const u32 (&words)[kBits], int k, u32 mine) {
    const int h = k / 8;
    // The low nibble of byte b of `top_bits` has the top bits of the codes of byte b of words[h].
    const u32 two = permute(words[2], 0, h == 0 ? 0x1100 : 0x3322), top_bits = select_bits(0x000f000fu, two, two >> 4);
    const u32 entries = k % 2 == 0 ? select_bits(0x0f0f0f0fu, words[h], top_bits << 4)
                                   : select_bits(0x0f0f0f0fu, words[h] >> 4, top_bits << 2);
    return permute(entries, mine, 0x5504u | u32(k % 8 / 2) << 4);
  }
};

}  // namespace kv
