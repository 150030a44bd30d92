// Unpack to fp16 by permutes: codes of up to four bits become halves by PRMT from registers, so there are no loads from
// a table and no bank conflicts. F::unpack spreads the codes of a lane read to nibbles, eight a word. Two permutes give
// the low and the high bytes of the halves of four codes, and two more put the bytes together. A half2 has two
// neighbouring slots of the word. Halves are value / kUnit, as in kernels/decode/unpack_f16.cuh.
//
// F::half_byte_word(i): byte j of word i is the low byte of entry 4 i + j; the high bytes begin at word 4.
// SPDX-License-Identifier: MIT
#pragma once
#include "device/simt.cuh"

namespace kv {

// The bytes of the entries in registers. They go by way of shared memory: as constants they would be in uniform
// registers, and be copied before each use.
template <class F>
struct HalfBytes {
  static constexpr int kWords = F::kHalfByteWords;  // of the low bytes, and of the high bytes
  u32 low[kWords], high[kWords];
  u32 half_word;  // 2^16: the upper half of a product with it is a shift that leaves the pipe of the permutes alone

  KV_DEVICE static void fill(SharedAddress at) {
    if (thread() == 0) {
      KV_UNROLL
      for (int i = 0; i < kWords; ++i) {
        store_shared_u32(at + i * 4, F::half_byte_word(i));
        store_shared_u32(at + (kWords + i) * 4, F::half_byte_word(4 + i));
      }
      store_shared_u32(at + 2 * kWords * 4, 1u << 16);
    }
  }
  KV_DEVICE void load(SharedAddress at) {
    KV_UNROLL
    for (int i = 0; i < kWords; ++i)
      low[i] = load_staged_u32(at + i * 4), high[i] = load_staged_u32(at + (kWords + i) * 4);
    half_word = load_staged_u32(at + 2 * kWords * 4);
  }
};

// The halves of four codes from their low and high bytes.
KV_DEVICE void join_bytes(u32* h, u32 low, u32 high) {
  h[0] = select_bytes(low, high, 0x5140u);
  h[1] = select_bytes(low, high, 0x7362u);
}

// Calls look_up(codes, signs, h) for each four codes: their nibbles, and bytes that are 0xff where bit 3 of a code is
// set. Only the lower three bits of each nibble of `codes` are left.
template <class F, class LookUp>
KV_DEVICE void for_each_four(const u32 (&w)[F::kReadWords], u32 (&h)[F::kReadCodes / 2], u32 half_word,
                             const LookUp& look_up) {
  u32 codes[F::kReadCodes / 8];
  F::unpack(w, codes);
  KV_UNROLL
  for (int m = 0; m < F::kReadCodes / 8; ++m) {
    const u32 entries = F::lower_entry(codes[m]), shifted = codes[m] << 4;
    look_up(entries, select_signs(codes[m], shifted, 0x9d8cu), h + 4 * m);
    look_up(multiply_high(entries, half_word), select_signs(codes[m], shifted, 0xbfaeu), h + 4 * m + 2);
  }
}

// Up to eight entries.
template <class F>
struct Permute8Read {
  KV_DEVICE static void row(const u32 (&w)[F::kReadWords], u32 (&h)[F::kReadCodes / 2], const HalfBytes<F>& t) {
    u32 codes[F::kReadCodes / 8];
    F::unpack(w, codes);
    KV_UNROLL
    for (int m = 0; m < F::kReadCodes / 8; ++m) {
      const u32 upper = multiply_high(codes[m], t.half_word);
      join_bytes(h + 4 * m, select_bytes(t.low[0], t.low[1], codes[m]), select_bytes(t.high[0], t.high[1], codes[m]));
      join_bytes(h + 4 * m + 2, select_bytes(t.low[0], t.low[1], upper), select_bytes(t.high[0], t.high[1], upper));
    }
  }
};

// Sixteen entries in opposite pairs: F::kPositive is bit 3 of the codes whose entries are those of the table; the
// entries of the other codes are their opposites. F::lower_entry gives the number of a code's entry in the table.
template <class F>
struct PermutePairsRead {
  KV_DEVICE static void row(const u32 (&w)[F::kReadWords], u32 (&h)[F::kReadCodes / 2], const HalfBytes<F>& t) {
    for_each_four<F>(w, h, t.half_word, [&](u32 entries, u32 signs, u32* four) {
      const u32 minus = (F::kPositive ? ~signs : signs) & 0x80808080u;
      join_bytes(four, select_bytes(t.low[0], t.low[1], entries), select_bytes(t.high[0], t.high[1], entries) ^ minus);
    });
  }
};

// Any sixteen entries: a nibble is looked up in both halves of the table, and its top bit selects one of the results.
template <class F>
struct Permute16Read {
  KV_DEVICE static void row(const u32 (&w)[F::kReadWords], u32 (&h)[F::kReadCodes / 2], const HalfBytes<F>& t) {
    for_each_four<F>(w, h, t.half_word, [&](u32 entries, u32 signs, u32* four) {
      join_bytes(
          four,
          select_bits(signs, select_bytes(t.low[2], t.low[3], entries), select_bytes(t.low[0], t.low[1], entries)),
          select_bits(signs, select_bytes(t.high[2], t.high[3], entries), select_bytes(t.high[0], t.high[1], entries)));
    });
  }
};

}  // namespace kv
