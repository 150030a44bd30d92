// Fields of codes: where the bits of each code lie in the bytes of a block. A field loads the bits of one code for a
// reader, and packs bytes from codes for a writer. A code whose bits are spread over several fields is their union.
// SPDX-License-Identifier: MIT
#pragma once
#include "device/simt.cuh"

namespace kv {

// A little-endian number of kBytes bytes at any address.
template <int kBytes>
KV_DEVICE u32 load_bytes(const u8* from) {
  u32 bits = from[0];
  KV_UNROLL
  for (int i = 1; i < kBytes; ++i) bits |= u32(from[i]) << 8 * i;
  return bits;
}

// Stores a little-endian number of kBytes bytes at a multiple of kUnit (1, 2 or 4), kUnit bytes at a time.
template <int kBytes, int kUnit>
KV_DEVICE void store_bytes(u8* to, u32 bits) {
  KV_UNROLL
  for (int i = 0; i < kBytes; i += kUnit) {
    if constexpr (kUnit == 4) *reinterpret_cast<u32*>(to + i) = bits;
    if constexpr (kUnit == 2) *reinterpret_cast<u16*>(to + i) = u16(bits >> 8 * i);
    if constexpr (kUnit == 1) to[i] = u8(bits >> 8 * i);
  }
}

// The largest power of two, at most kMost, that divides all three numbers. kMost is a power of two.
template <int kMost>
KV_DEVICE constexpr int unit_of(int a, int b, int c) {
  int unit = kMost;
  while ((a | b | c) % unit != 0) unit /= 2;
  return unit;
}

// A field of kWidth bits of each code, bits kLow_ and up, from kAt_ bytes on in the block. kSplit_ = 0: the codes form
// a little-endian bit stream. kSplit_ = h: a byte has codes j and j + h of a span of 2 h codes, with 4 bits each.
template <int kAt_, int kWidth, int kLow_ = 0, int kSplit_ = 0>
struct CodeField {
  static constexpr int kAt = kAt_, kBits = kWidth, kLow = kLow_, kSplit = kSplit_;
  static constexpr u32 kMask = kBits == 32 ? 0xffffffffu : (1u << kBits % 32) - 1;

  // The bit at which code k begins, from the start of the field.
  KV_DEVICE static int bit_of(int k) {
    if constexpr (kSplit > 0)
      return (k / (2 * kSplit) * kSplit + k % kSplit) * 8 + k / kSplit % 2 * 4;
    else
      return k * kBits;
  }

  // The field's bits of code k, at their place in the code.
  KV_DEVICE static u32 load(const u8* block, int k) {
    if constexpr (kBits % 8 == 0) return load_bytes<kBits / 8>(block + kAt + k * (kBits / 8));
    const int bit = bit_of(k);
    u32 window = block[kAt + bit / 8];
    if (bit % 8 + kBits > 8) window |= u32(block[kAt + bit / 8 + 1]) << 8;
    return (window >> bit % 8 & kMask) << kLow;
  }

  // Bytes j .. j + kUnit - 1 of the field, packed from codes of one byte each. j is a multiple of kUnit. If codes
  // straddle units, one code past the last one needed may be read.
  template <int kUnit>
  KV_DEVICE static u32 packed(const u8* codes, int j) {
    u32 bits = 0;
    if constexpr (kSplit > 0) {
      KV_UNROLL
      for (int i = 0; i < kUnit; ++i) {
        const u8* const low = codes + (j + i) / kSplit * 2 * kSplit + (j + i) % kSplit;
        bits |= (low[0] >> kLow & kMask) << 8 * i | (low[kSplit] >> kLow & kMask) << (8 * i + 4);
      }
      return bits;
    }
    constexpr int kUnitBits = 8 * kUnit;
    constexpr int kCodes = kUnitBits % kBits == 0 ? kUnitBits / kBits : (kUnitBits + kBits - 2) / kBits + 1;
    static_assert(kUnitBits % kBits == 0 || kUnit <= 2, "straddling codes of a word need more than 32 bits");
    const int first = 8 * j / kBits;
    KV_UNROLL
    for (int i = 0; i < kCodes; ++i) bits |= (codes[first + i] >> kLow & kMask) << i * kBits;
    return bits >> (8 * j - first * kBits);
  }
};

// A field of codes of 3 bits, in kGroups groups of 32. A group j has three words: words j, kGroups + j and 2 kGroups +
// j of the field. Of the first two words (h = 0, 1), nibble n holds code 16 h + n and the top bit of code 16 h + 8 + n.
// The two low bits of that code are bits 2 h and 2 h + 1 of nibble n of the third word.
template <int kAt_, int kGroups>
struct NibbleField {
  static constexpr int kAt = kAt_, kBits = 3;

  KV_DEVICE static u32 load(const u8* block, int k) {
    const int group = k / 32, h = k / 16 % 2, n = k % 8;
    const auto nibble = [&](int word) { return u32(block[kAt + word * 4 + n / 2]) >> n % 2 * 4; };
    const u32 first = nibble(h * kGroups + group);
    return k % 16 < 8 ? first & 7u : (first >> 1 & 4u) | (nibble(2 * kGroups + group) >> 2 * h & 3u);
  }

  template <int kUnit>
  KV_DEVICE static u32 packed(const u8* codes, int j) {
    u32 bits = 0;
    KV_UNROLL
    for (int i = 0; i < 2 * kUnit; ++i) {
      const int word = (j + i / 2) / 4, h = word / kGroups, n = (j + i / 2) % 4 * 2 + i % 2;
      const u8* const group = codes + word % kGroups * 32 + n;
      bits |= (h < 2 ? (group[16 * h] & 7u) | (group[16 * h + 8] & 4u) << 1 : (group[8] & 3u) | (group[24] & 3u) << 2)
              << 4 * i;
    }
    return bits;
  }
};

// All fields that a code is spread over.
template <class... Fields>
struct CodeFields {
  KV_DEVICE static u32 load(const u8* block, int k) { return (Fields::load(block, k) | ...); }
};

}  // namespace kv
