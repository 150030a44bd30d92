// Trellis codes, as readers see them. The codes of a block are one stream of bits. The code of value i is the state of
// the trellis behind it: kBits bits of the stream from bit i * kStep on. So a code shares all but kStep bits with its
// neighbour, and any code can be read without those before it. Its value is an entry of a table of all states. The
// stream of a tail-biting trellis is a circle: behind its last bit is its first.
//
// Data has what formats/codes.cuh asks of a table, without bounds, kStep and kIsTailBiting.
// SPDX-License-Identifier: MIT
#pragma once
#include "formats/codes.cuh"

namespace kv {

// The stream of a block, from kAt_ bytes on. kWidth: bits of a code, at most 9, so that two bytes have them. kCircle:
// bytes of a stream that is a circle, or 0.
template <int kAt_, int kWidth, int kStep_, int kCircle_>
struct TrellisField {
  static constexpr int kAt = kAt_, kBits = kWidth, kStep = kStep_, kCircle = kCircle_;
  static_assert(kBits <= 9, "a code lies in two bytes");

  KV_DEVICE static u32 load(const u8* block, int k) {
    const int bit = k * kStep, next = bit / 8 + 1;
    u32 window = block[kAt + bit / 8];
    if (bit % 8 + kBits > 8) window |= u32(block[kAt + (next == kCircle ? 0 : next)]) << 8;
    return window >> bit % 8 & ((1u << kBits) - 1);
  }
};

template <class Data>
struct TrellisCodes : Data {
  static constexpr bool kIsTable = true, kIsWide = false, kIsTrellis = true;
};

}  // namespace kv
