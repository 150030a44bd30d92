// Unpack to int8: from packed codes of K to signed bytes in registers, for IMMA with Q as 16-bit integers (scores.cuh).
// Four codes a word, in the order of F's unpack sequence. A code stands for
//
//   one term     y                  y in -128..127
//   two terms    y + z / 256        z in 0..255, for codebook entries that need more than eight bits
//
// times the unit. Where all entries are n + 1/2, y is n, and the kernel adds the half through the sum of Q. Entries are
// looked up by PRMT from registers, up to eight entries in two of them, so there are no loads and no bank conflicts.
// SPDX-License-Identifier: MIT
#pragma once
#include "device/simt.cuh"

namespace kv {

// The table in registers, of the first section of K. Byte j of word i is y of code 4 i + j; z begins at word 4.
template <class F>
struct IntegerTable {
  u32 word[F::kTableWords > 0 ? F::kTableWords : 1];  // four entries each
  u32 half_word;  // 2^16: the upper half of a product with it is a shift that leaves the pipe of the permutes alone
  // The table goes by way of shared memory: as constants its words would be in uniform registers, and be copied before
  // each use.
  KV_DEVICE static void fill(SharedAddress at) {
    if (thread() == 0) {
      KV_UNROLL
      for (int i = 0; i < F::kTableWords; ++i) store_shared_u32(at + i * 4, F::table_word(i));
      store_shared_u32(at + F::kTableWords * 4, 1u << 16);
    }
  }
  KV_DEVICE void load(SharedAddress at) {
    KV_UNROLL
    for (int i = 0; i < F::kTableWords; ++i) word[i] = load_staged_u32(at + i * 4);
    half_word = load_staged_u32(at + F::kTableWords * 4);
  }
};

// Codes that are integers themselves: F::unpack gives the bytes.
template <class F>
struct PlainIntegers {
  static constexpr int kTerms = 1;
  KV_DEVICE static void words(const u32 (&w)[F::kReadWords], u32* y, u32*, const IntegerTable<F>&) { F::unpack(w, y); }
};

// Calls look_up(codes, m) for each word m of eight codes, a nibble each. It gives the byte words 2m and 2m + 1.
template <class F, class LookUp>
KV_DEVICE void for_each_eight(const u32 (&w)[F::kReadWords], const LookUp& look_up) {
  u32 codes[F::kReadCodes / 8];
  F::unpack(w, codes);
  KV_UNROLL
  for (int m = 0; m < F::kReadCodes / 8; ++m) look_up(codes[m], m);
}

// Up to eight entries: a nibble selects a byte of two words. A product with 2^16 brings the upper four nibbles down.
template <class F>
struct Table8Integers {
  static constexpr int kTerms = F::kTableTerms;
  KV_DEVICE static void words(const u32 (&w)[F::kReadWords], u32* y, u32* z, const IntegerTable<F>& t) {
    for_each_eight<F>(w, [&](u32 codes, int m) {
      const u32 upper = multiply_high(codes, t.half_word);
      y[2 * m] = select_bytes(t.word[0], t.word[1], codes);
      y[2 * m + 1] = select_bytes(t.word[0], t.word[1], upper);
      if constexpr (kTerms == 2) {
        z[2 * m] = select_bytes(t.word[4], t.word[5], codes);
        z[2 * m + 1] = select_bytes(t.word[4], t.word[5], upper);
      }
    });
  }
};

// Sixteen entries n + 1/2, where the entry of code 8 + i is the opposite of that of code i. The complement of an
// integer n is -n - 1, and -n - 1 + 1/2 = -(n + 1/2), so a sign is an exclusive or. The table holds the entries of
// codes 0..7.
template <class F>
struct MirroredIntegers {
  static constexpr int kTerms = 1;
  KV_DEVICE static void words(const u32 (&w)[F::kReadWords], u32* y, u32*, const IntegerTable<F>& t) {
    for_each_eight<F>(w, [&](u32 codes, int m) {
      const u32 magnitudes = codes & 0x77777777u, shifted = codes << 4;  // the sign bit of each code on top of a byte
      y[2 * m] = select_bytes(t.word[0], t.word[1], magnitudes) ^ select_signs(codes, shifted, 0x9d8cu);
      y[2 * m + 1] = select_bytes(t.word[0], t.word[1], multiply_high(magnitudes, t.half_word)) ^
                     select_signs(codes, shifted, 0xbfaeu);
    });
  }
};

// Any sixteen entries: a nibble is looked up in both halves of the table, and its top bit selects one of the results.
template <class F>
struct Table16Integers {
  static constexpr int kTerms = 1;
  KV_DEVICE static void words(const u32 (&w)[F::kReadWords], u32* y, u32*, const IntegerTable<F>& t) {
    for_each_eight<F>(w, [&](u32 codes, int m) {
      const u32 low = codes & 0x77777777u, shifted = codes << 4;
      KV_UNROLL
      for (int half = 0; half < 2; ++half) {
        const u32 at = half ? multiply_high(low, t.half_word) : low,
                  is_high = select_signs(codes, shifted, half ? 0xbfaeu : 0x9d8cu);
        y[2 * m + half] =
            (select_bytes(t.word[2], t.word[3], at) & is_high) | (select_bytes(t.word[0], t.word[1], at) & ~is_high);
      }
    });
  }
};

}  // namespace kv
