// Unpack codes that few formats have to fp16, with the interface of kernels/decode/unpack_f16.cuh: states of a trellis,
// codes that count from a zero point, and E4M3 with a bias of 15.
// SPDX-License-Identifier: MIT
#pragma once
#include "kernels/decode/unpack_f16.cuh"

namespace kv {

// ---- trellis: codes overlap in the stream (formats/trellis.cuh), so none is spread to a code lane. The bits of each
// become the address of an entry, by a shift of the word, or of two, that has them and one mask. Codes keep their
// order. They are looked up one by one, or kAtOnce = 2 neighbours at once: their bits, kStep more than those of one,
// are the index. ----

// Entries of kTableStride bytes: the half of each state, or the half2 of each two that follow each other.
template <class S>
struct TrellisEntries {
  static constexpr int kIndexBits = S::kBits + (S::kAtOnce - 1) * S::kStep, kEntries = 1 << kIndexBits, kEntryWords = 1;
  KV_DEVICE static u32 entry(int states, int) {
    if constexpr (S::kAtOnce == 1) return S::half_value(states);
    constexpr int kMask = (1 << S::kBits) - 1;
    return u32(S::half_value(states & kMask)) | u32(S::half_value(states >> S::kStep)) << 16;
  }
};

template <class S>
struct TrellisRead {
  // The entry of code i of the loaded words, or of codes i and i + 1. Its index is bits i * kStep and up.
  template <int kWords>
  KV_DEVICE static u32 entry(const u32 (&w)[kWords], int i, Table table) {
    constexpr int kIndexBits = TrellisEntries<S>::kIndexBits;
    constexpr u32 kMask = ((1u << kIndexBits) - 1) * S::kTableStride;
    constexpr int kShift = log2_of(S::kTableStride);
    static_assert(S::kTableStride == 1 << kShift, "an index is shifted to an offset");
    const int bit = i * S::kStep - kShift, word = bit / 32;
    const u32 offset = bit < 0 ? w[0] << -bit
                       : bit % 32 + kShift + kIndexBits > 32 && word + 1 < kWords
                           ? shift_right(w[word], w[word + 1], bit % 32)
                           : w[word] >> bit % 32;
    return load_table<S::kTableAt>((offset & kMask) | table.mine);
  }

  KV_DEVICE static void row(const u32 (&w)[S::kReadWords], u32 (&h)[S::kReadCodes / 2], Table table) {
    KV_UNROLL
    for (int i = 0; i < S::kReadCodes / 2; ++i) {
      h[i] = entry(w, 2 * i, table);
      if constexpr (S::kAtOnce == 1) h[i] = permute(h[i], entry(w, 2 * i + 1, table), 0x5410);
    }
  }
  KV_DEVICE static void column(const u32 (&w0)[S::kReadWords], const u32 (&w1)[S::kReadWords], u32 (&h)[S::kReadCodes],
                               Table table) {
    KV_UNROLL
    for (int i = 0; i < S::kReadCodes; i += S::kAtOnce) {
      const u32 first = entry(w0, i, table), second = entry(w1, i, table);  // of two tokens
      h[i] = permute(first, second, 0x5410);
      if constexpr (S::kAtOnce == 2) h[i + 1] = permute(first, second, 0x7632);
    }
  }

 private:
  KV_DEVICE static constexpr int log2_of(int v) { return v > 1 ? 1 + log2_of(v / 2) : 0; }
};

// ---- codes that count from a zero point: the halves 1024 + code, whose bits are 0x6400 + code. The zero point z is
// that of a token, so 1024 + z is subtracted where scales and minima are applied: as a fused product with 1 and a
// minimum of -(1024 + z). The difference is a small integer, which fp16 holds exactly. ----

template <class F>
struct CountedPairs {
  static constexpr int kEntries = 0, kEntryWords = 1;
  KV_DEVICE static u32 entry(int, int) { return 0; }

  KV_DEVICE static void pairs(u32 a, u32 b, u32* h, Table) {
    constexpr u32 kMagic = 0x64646464u;
    const u32 low = permute(a, b, 0x5140), high = permute(a, b, 0x7362);  // a0 b0 a1 b1, a2 b2 a3 b3
    h[0] = permute(low, kMagic, 0x4140);
    h[1] = permute(low, kMagic, 0x4342);
    h[2] = permute(high, kMagic, 0x4140);
    h[3] = permute(high, kMagic, 0x4342);
  }
};

// The half -(1024 + zero).
KV_DEVICE u32 minus_counted(u32 zero) { return 0xe400u + zero; }

// ---- E4M3 with a bias of 15: a byte is the upper byte of a half whose exponent, below the sign, is one bit further
// down. ----

template <class F>
struct E4m3b15Pairs {
  static constexpr int kEntries = 0, kEntryWords = 1;
  KV_DEVICE static u32 entry(int, int) { return 0; }

  KV_DEVICE static void pairs(u32 a, u32 b, u32* h, Table) {
    h[0] = halves(permute(a, b, 0x4400));  // bytes 1 and 3 of the selection are the upper ones
    h[1] = halves(permute(a, b, 0x5511));
    h[2] = halves(permute(a, b, 0x6622));
    h[3] = halves(permute(a, b, 0x7733));
  }

 private:
  KV_DEVICE static u32 halves(u32 bytes) { return (bytes & 0x80008000u) | (bytes >> 1 & 0x3f803f80u); }
};

}  // namespace kv
