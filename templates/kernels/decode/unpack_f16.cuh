// Unpack to fp16: from packed codes to half2 (two fp16 in a register), as the tensor cores take them. K and V share
// this code.
//
// F::unpack, a sequence of shifts and masks that the generator writes for the packing, first spreads the codes of a
// lane read to code lanes: bit fields of words, with one code each. With code lanes of a byte, two such words a and b
// become four half2; number j is (value of byte j of a, value of byte j of b):
//
//   K side   a and b are two words of one token            a half2 runs along head_dim, the contraction of Q K^T
//   V side   a and b are the same word of two tokens       a half2 runs along tokens, the contraction of P V
//
// Codebooks are looked up in shared memory, one look-up for a half2; integers and 8-bit floats are computed. A half2
// holds value / kUnit of its section. The unit of the first section is Side::kUnit, which joins the softmax scale (K)
// or the output (V); other sections have it in their scales. Block scales are applied to scores and probabilities.
// SPDX-License-Identifier: MIT
#pragma once
#include "device/simt.cuh"

namespace kv {

// A lane's copy of the table of codebook entries in shared memory at F::kTableAt. Entries are kTableStride bytes apart
// (at most 128). Each holds kTableCopies copies of its value, so that lanes read different banks. An entry is
//
//   up to 4 bits     the values of two codes: (value[i], value[i >> kIndexBits]), each index masked to kBits
//   5 to 8 bits      one value
//   1, 2 bits of V   two half2, of two channels, by the two nibbles of i
//
struct Table {
  u32 mine,         // byte offset of the lane's copy inside an entry of one word
      mine_of_two;  // ... inside an entry of two words
};
template <int kCopies>
KV_DEVICE Table table_of_lane() {
  return {u32(lane() % kCopies * 4), u32(lane() % (kCopies > 1 ? kCopies / 2 : 1) * 8)};
}

// The address, relative to kTableAt, of the entry whose index is a byte of `word`: index x stride + mine. It is a dot
// product, because the pipe of the multiplications has cycles to spare.
template <class F>
KV_DEVICE u32 entry_at(u32 mine, u32 word, int byte) {
  static_assert(F::kTableStride < 256, "factors are bytes");
  return dot_bytes(word, u32(F::kTableStride) << 8 * byte, mine);
}
template <class F>
KV_DEVICE u32 table_entry(Table table, u32 word, int byte) {
  return load_table<F::kTableAt>(entry_at<F>(table.mine, word, byte));
}

// Codebook indices: an index of two codes, or of one code above 4 bits, gives the entry.
template <class F>
struct TablePairs {
  static constexpr int kIndexBits = F::kCodeLaneBits > 0 ? F::kCodeLaneBits : F::kBits, kEntryWords = 1;
  static constexpr int kEntries = F::kCodeLaneBits > 0 ? 256 : F::kBits <= 4 ? 1 << 2 * F::kBits : 1 << F::kBits;

  KV_DEVICE static u32 entry(int i, int) {
    constexpr int kMask = (1 << F::kBits) - 1;
    if constexpr (F::kBits <= 4)
      return u32(F::half_value(i & kMask)) | u32(F::half_value(i >> kIndexBits & kMask)) << 16;
    else
      return F::half_value(i);
  }

  KV_DEVICE static void pairs(u32 a, u32 b, u32* h, Table table) {
    if constexpr (F::kBits <= 4) {
      look_up(a | b << F::kBits, h, table);
    } else {
      KV_UNROLL
      for (int j = 0; j < 4; ++j) h[j] = permute(table_entry<F>(table, a, j), table_entry<F>(table, b, j), 0x5410);
    }
  }
  // One half2 for each byte, which is an index of two codes.
  KV_DEVICE static void look_up(u32 indices, u32* h, Table table) {
    KV_UNROLL
    for (int j = 0; j < 4; ++j) h[j] = table_entry<F>(table, indices, j);
  }
};

// Codebook indices of one or two bits of V: a byte has the codes of two tokens and two channels.
template <class F>
struct TableTwoPairs {
  static constexpr int kEntries = 256, kEntryWords = 2;

  KV_DEVICE static u32 entry(int i, int channel) {
    constexpr int kMask = (1 << F::kBits) - 1;
    const int codes = i >> 4 * channel;
    return u32(F::half_value(codes & kMask)) | u32(F::half_value(codes >> 2 & kMask)) << 16;
  }

  // Two half2 for each byte.
  KV_DEVICE static void look_up(u32 indices, u32* h, Table table) {
    KV_UNROLL
    for (int j = 0; j < 4; ++j) load_table_u64<F::kTableAt>(h + 2 * j, entry_at<F>(table.mine_of_two, indices, j));
  }
};

// Uniform codes: value = code - kOffset. The bits 0x6400 + code are the half 1024 + code, so subtracting the half
// 1024 + kOffset is exact.
template <class F>
struct UniformPairs {
  static constexpr int kEntries = 0, kEntryWords = 1;
  KV_DEVICE static u32 entry(int, int) { return 0; }

  KV_DEVICE static void pairs(u32 a, u32 b, u32* h, Table) {
    constexpr u32 kMagic = 0x64646464u, kZero = (0x6400u + F::kOffset) * 0x10001u;
    const u32 low = permute(a, b, 0x5140), high = permute(a, b, 0x7362);  // a0 b0 a1 b1, a2 b2 a3 b3
    h[0] = sub_f16x2(permute(low, kMagic, 0x4140), kZero);
    h[1] = sub_f16x2(permute(low, kMagic, 0x4342), kZero);
    h[2] = sub_f16x2(permute(high, kMagic, 0x4140), kZero);
    h[3] = sub_f16x2(permute(high, kMagic, 0x4342), kZero);
  }
};

// OCP 8-bit floats: E5M2 is the upper byte of a half; E4M3 fits in a half exactly.
template <class F>
struct E5m2Pairs {
  static constexpr int kEntries = 0, kEntryWords = 1;
  KV_DEVICE static u32 entry(int, int) { return 0; }

  KV_DEVICE static void pairs(u32 a, u32 b, u32* h, Table) {
    h[0] = permute(a, b, 0x4400) & 0xff00ff00u;  // bytes 1 and 3 of the selection are the upper ones
    h[1] = permute(a, b, 0x5511) & 0xff00ff00u;
    h[2] = permute(a, b, 0x6622) & 0xff00ff00u;
    h[3] = permute(a, b, 0x7733) & 0xff00ff00u;
  }
};
template <class F>
struct E4m3Pairs {
  static constexpr int kEntries = 0, kEntryWords = 1;
  KV_DEVICE static u32 entry(int, int) { return 0; }

  KV_DEVICE static void pairs(u32 a, u32 b, u32* h, Table) {
    const u32 low = permute(a, b, 0x5140), high = permute(a, b, 0x7362);  // a0 b0 a1 b1, a2 b2 a3 b3
    f16x4_from_e4m3x4(h, low);
    f16x4_from_e4m3x4(h + 2, high);
  }
};

// Unpacks one lane read (kReadCodes codes) by code lanes of a byte: along a row of K, or of two tokens of V.
template <class Side>
struct CodeRead {
  KV_DEVICE static void row(const u32 (&w)[Side::kReadWords], u32 (&h)[Side::kReadCodes / 2], Table table) {
    u32 y[Side::kReadCodes / 4];
    Side::unpack(w, y);
    KV_UNROLL
    for (int m = 0; m < Side::kReadCodes / 8; ++m) Side::Pairs::pairs(y[2 * m], y[2 * m + 1], h + 4 * m, table);
  }
  KV_DEVICE static void column(const u32 (&w0)[Side::kReadWords], const u32 (&w1)[Side::kReadWords],
                               u32 (&h)[Side::kUnpackedCodes], Table table) {
    u32 y0[Side::kUnpackedCodes / 4], y1[Side::kUnpackedCodes / 4];
    Side::unpack(w0, y0);
    Side::unpack(w1, y1);
    KV_UNROLL
    for (int m = 0; m < Side::kUnpackedCodes / 4; ++m) Side::Pairs::pairs(y0[m], y1[m], h + 4 * m, table);
  }
};

// Down a column of V by narrow code lanes of kCodeLaneBits. The even code lanes of both tokens make one word of
// indices, the odd ones another, by a shift and a select each. The table ignores the bits that a code lane holds above
// its code, so nothing masks them off.
template <class Side>
struct CodeLaneRead {
  KV_DEVICE static void column(const u32 (&w0)[Side::kReadWords], const u32 (&w1)[Side::kReadWords],
                               u32 (&h)[Side::kUnpackedCodes], Table table) {
    constexpr int kBits = Side::kCodeLaneBits, kPerWord = kBits == 2 ? 16 : 8;
    constexpr u32 kEven = kBits == 4 ? 0x0f0f0f0fu : kBits == 3 ? 0x07070707u : 0x33333333u;
    u32 y0[Side::kUnpackedCodes / kPerWord], y1[Side::kUnpackedCodes / kPerWord];
    Side::unpack(w0, y0);
    Side::unpack(w1, y1);
    KV_UNROLL
    for (int m = 0; m < Side::kUnpackedCodes / kPerWord; ++m) {
      Side::Pairs::look_up(select_bits(kEven, y0[m], y1[m] << kBits), h + kPerWord * m, table);
      Side::Pairs::look_up(select_bits(kEven, y0[m] >> kBits, y1[m]), h + kPerWord * m + kPerWord / 2, table);
    }
  }
};

// Along a row of K with 4-bit codes, two a byte: each stored byte is the index of a half2.
template <class Side>
struct ByteRead {
  KV_DEVICE static void row(const u32 (&w)[Side::kReadWords], u32 (&h)[Side::kReadCodes / 2], Table table) {
    KV_UNROLL
    for (int i = 0; i < Side::kReadWords; ++i) Side::Pairs::look_up(w[i], h + 4 * i, table);
  }
};

// Values that are no codes: f16 as it is; bf16 and f32 rounded to f16. From 2^-14 to 65504 bf16 is exact and f32 within
// 2^-12; beyond 65504 they become infinity, so an overflow shows. K takes another way where the arch has products of
// bf16 (rare/bfloat_keys.cuh).
template <class Side>
struct F16Read {
  KV_DEVICE static void row(const u32 (&w)[Side::kReadWords], u32 (&h)[Side::kReadCodes / 2], Table) {
    KV_UNROLL
    for (int i = 0; i < Side::kReadWords; ++i) h[i] = w[i];
  }
  KV_DEVICE static void column(const u32 (&w0)[Side::kReadWords], const u32 (&w1)[Side::kReadWords],
                               u32 (&h)[Side::kReadCodes], Table) {
    KV_UNROLL
    for (int i = 0; i < Side::kReadWords; ++i) {
      h[2 * i] = permute(w0[i], w1[i], 0x5410);
      h[2 * i + 1] = permute(w0[i], w1[i], 0x7632);
    }
  }
};
template <class Side>
struct Bf16Read {
  KV_DEVICE static u32 halves(u32 lo, u32 hi) {
    return pack_f16x2(f32_from_bf16(lo & 0xffff), f32_from_bf16(hi & 0xffff));
  }
  KV_DEVICE static void row(const u32 (&w)[Side::kReadWords], u32 (&h)[Side::kReadCodes / 2], Table) {
    KV_UNROLL
    for (int i = 0; i < Side::kReadWords; ++i) h[i] = halves(w[i], w[i] >> 16);
  }
  KV_DEVICE static void column(const u32 (&w0)[Side::kReadWords], const u32 (&w1)[Side::kReadWords],
                               u32 (&h)[Side::kReadCodes], Table) {
    KV_UNROLL
    for (int i = 0; i < Side::kReadWords; ++i) {
      h[2 * i] = halves(w0[i], w1[i]);
      h[2 * i + 1] = halves(w0[i] >> 16, w1[i] >> 16);
    }
  }
};
template <class Side>
struct F32Read {
  // The rest of row(): what its halves miss of each value, as halves. With it keys count to 2^-22, which they must,
  // because scores are sums of large products.
  KV_DEVICE static void rest(const u32 (&w)[Side::kReadWords], u32 (&h)[Side::kReadCodes / 2]) {
    KV_UNROLL
    for (int i = 0; i < Side::kReadWords / 2; ++i) {
      const float x = float_of(w[2 * i]), y = float_of(w[2 * i + 1]);
      const u32 pair = pack_f16x2(x, y);
      h[i] = pack_f16x2(x - f32_from_f16(pair & 0xffffu), y - f32_from_f16(pair >> 16));
    }
  }
  KV_DEVICE static void row(const u32 (&w)[Side::kReadWords], u32 (&h)[Side::kReadCodes / 2], Table) {
    KV_UNROLL
    for (int i = 0; i < Side::kReadWords / 2; ++i) h[i] = pack_f16x2(float_of(w[2 * i]), float_of(w[2 * i + 1]));
  }
  KV_DEVICE static void column(const u32 (&w0)[Side::kReadWords], const u32 (&w1)[Side::kReadWords],
                               u32 (&h)[Side::kReadCodes], Table) {
    KV_UNROLL
    for (int i = 0; i < Side::kReadWords; ++i) h[i] = pack_f16x2(float_of(w0[i]), float_of(w1[i]));
  }
};

// Applies scales to values, for formats whose scales cannot multiply scores or probabilities: each half2 becomes
// half2 x scale + minimum, rounded once.
template <int kPairs>
KV_DEVICE void scale_pairs(u32 (&h)[kPairs], u32 scale, u32 minimum) {
  KV_UNROLL
  for (int i = 0; i < kPairs; ++i) h[i] = fma_f16x2(h[i], scale, minimum);
}

}  // namespace kv
