// A field of codes of 1, 2 or 4 bits whose bytes have elements that lie apart: byte j of a span of 8 kSplit / kBits
// elements has elements j, j + kSplit, j + 2 kSplit, ... These are the parts of the byte. Part i of the elements is at
// the i-th place from the lowest bits on, or where kOrder says so: its i-th hexadecimal digit is the part at place i.
// Fields of 4 bits in ascending order are CodeFields (formats/fields.cuh).
// SPDX-License-Identifier: MIT
#pragma once
#include "formats/fields.cuh"

namespace kv {

template <int kAt_, int kWidth, int kLow_, int kSplit, u32 kOrder>
struct SplitField {
  static constexpr int kAt = kAt_, kBits = kWidth, kLow = kLow_, kParts = 8 / kWidth;
  static constexpr u32 kMask = (1u << kBits) - 1;

  KV_DEVICE static constexpr int part_at(int place) { return kOrder ? int(kOrder >> 4 * place & 15) : place; }
  KV_DEVICE static constexpr int place_of(int part) {
    for (int place = 0; place < kParts; ++place)
      if (part_at(place) == part) return place;
    return 0;
  }

  // The field's bits of code k, at their place in the code.
  KV_DEVICE static u32 load(const u8* block, int k) {
    const int part = k / kSplit % kParts, byte = k / (kParts * kSplit) * kSplit + k % kSplit;
    return (u32(block[kAt + byte]) >> place_of(part) * kBits & kMask) << kLow;
  }

  // Bytes j .. j + kUnit - 1 of the field, packed from codes of one byte each.
  template <int kUnit>
  KV_DEVICE static u32 packed(const u8* codes, int j) {
    u32 bits = 0;
    KV_UNROLL
    for (int i = 0; i < kUnit * kParts; ++i) {
      const int byte = j + i / kParts, place = i % kParts;
      const u8* const span = codes + byte / kSplit * (kParts * kSplit) + byte % kSplit;
      bits |= (span[part_at(place) * kSplit] >> kLow & kMask) << (8 * (i / kParts) + place * kBits);
    }
    return bits;
  }
};

}  // namespace kv
