// Powers of two of tokens, in plans whose K or V holds numbers beyond the range of fp16. Operands are halves, so a row
// whose largest number is not between 2^kLeast and 2^kMost as a half is relative to a power of two of its own:
//
//   producer   rows are multiplied by 2^-e before they are rounded, and e is stored beside the stage (fit_rows.cuh). In
//              two passes the first one does that, and the producer copies e (stored_exponents.cuh)
//   K          scores of the token are multiplied by 2^e
//   V          probabilities are multiplied by 2^e / 2^E. E is an exponent of each query row, near that of its
//              largest probability times 2^e in a tile, so it depends on what the row sees alone. Sums are relative to
//              2^E: they are multiplied when it changes, and after the last tile
//
// Multiplications by powers of two are exact. Rows of ordinary size have e = 0; as long as all rows of the stage have
// that, nothing is multiplied, and sums are what they were without exponents.
// SPDX-License-Identifier: MIT
#pragma once
#include "kernels/prefill/consumer.cuh"
#include "kernels/prefill/powers_of_two.cuh"

namespace kv {

template <class Plan, bool kIsV>
concept HasExponents = (kIsV ? Plan::kHasValueExponents : Plan::kHasKeyExponents);

template <class Plan, bool kIsV>
requires(HasExponents<Plan, kIsV>) struct TokenExponents<Plan, kIsV> {
  static constexpr bool kHas = true;
  static constexpr SharedAddress kAt =
      Plan::kExponentsAt + (kIsV && Plan::kHasKeyExponents ? 1 : 0) * (Plan::kExponentPlaces * Plan::kTokens);
  static constexpr u32 kNone = kExponentBias * 0x01010101u;  // the exponents of four tokens that have none
  // Where the exponents of stage n are, a byte a token.
  KV_DEVICE static SharedAddress stage(int n) { return kAt + n % Plan::kExponentPlaces * Plan::kTokens; }
  // Waits until those of V are there.
  KV_DEVICE static void await(int n) { wait_phase(Stages<Plan>::full(true, n), Stages<Plan>::parity(n)); }
  // All threads of the block call it before the first stage is filled.
  KV_DEVICE static void open() {
    constexpr int kThreads = (Plan::kWarps + Plan::kConsumerWarps) * 32;
    for (int i = thread(); i < Plan::kExponentPlaces * Plan::kTokens / 4; i += kThreads)
      store_shared_u32(kAt + 4 * i, kNone);
  }

  // Whether a token of the stage has an exponent, or any lane says so. The stage is full.
  KV_DEVICE static bool has_some(int n, bool some = false) {
    static_assert(Plan::kTokens <= 128, "each lane looks at four tokens");
    if (Plan::kTokens == 128 || 4 * lane() < Plan::kTokens) some |= load_shared_u32(stage(n) + 4 * lane()) != kNone;
    return any(some);
  }
  // Multiplies numbers of the lane's tokens by their powers of two.
  template <int kScores>
  KV_DEVICE static void scale(float (&s)[kScores], int n) {
    const SharedAddress own = stage(n) + first_token<Plan>(0);
    KV_UNROLL
    for (int i = 0; i < kScores; i += 4) {
      const u32 pair = load_shared_u16(own + i * 2);
      KV_UNROLL
      for (int j = 0; j < 2; ++j) {
        const float power = float_of((pair >> 8 * j & 255u) << 23);
        s[i + j] *= power, s[i + 2 + j] *= power;
      }
    }
  }
};

// E of the lane's query rows: a byte for each row g + 8 h of block b, 0 as long as no tile had an exponent. A second
// byte bounds the row's sums relative to 2^E: it says how far E may fall.
template <class Plan>
requires(HasExponents<Plan, true>) struct RowExponents<Plan> {
  static constexpr int kStay = 8,      // E stays where it is at most this much larger than it needs to be
      kMostSum = kExponentBias + 76,   // of sums; 2^24 tiles add up to less than float32 holds
      kFirstSum = kExponentBias + 32,  // of tiles without exponents: probabilities up to 2^15, halves up to 2^14
      kTileSum = kExponentBias + 24;   // of a tile: probabilities up to 2 of 128 tokens, halves up to 2^14
  u32 exponents = 0, bounds = 0;

  KV_DEVICE static int byte_of(u32 word, int b, int h) { return int(word >> (16 * b + 8 * h) & 255u); }
  KV_DEVICE static void set_byte(u32& word, int b, int h, int value) {
    word = (word & ~(255u << (16 * b + 8 * h))) | u32(value) << (16 * b + 8 * h);
  }
  KV_DEVICE void reset() { exponents = 0; }
  // s: probabilities of block b and the tile of stage n; o: the sums of the block so far; before: its denominators.
  // combine: joins the largest products and the denominators of rows that another warp has a part of, too.
  template <int kScores, int kSums, class Combine>
  KV_DEVICE void fit(float (&s)[kScores], float (&o)[kSums], const float (&before)[2], int n, int b,
                     const Combine& combine) {
    using Tokens = TokenExponents<Plan, true>;
    // Warps that share rows go on together.
    if (!Plan::kSharesRows && !Tokens::has_some(n, byte_of(exponents, b, 0) != 0)) return;
    Tokens::scale(s, int(hide_from_optimizer(u32(n))));
    float products[2], sums[2], of_sums[2];
    RowSoftmax::largest_of_rows(s, 1.f, products);
    KV_UNROLL
    for (int h = 0; h < 2; ++h) {
      sums[h] = before[h] + shfl_xor(before[h], 1);
      sums[h] += shfl_xor(sums[h], 2);
    }
    combine(products, sums);
    KV_UNROLL
    for (int h = 0; h < 2; ++h) {
      const bool is_first = byte_of(exponents, b, h) == 0;
      const int old = is_first ? kExponentBias : byte_of(exponents, b, h), wanted = int(bits_of(products[h]) >> 23);
      int bound = is_first ? kFirstSum : byte_of(bounds, b, h);
      if (sums[h] == 0.f) bound = 0;  // of a row that has seen no token yet, while others of the warp have
      const int least = old - (kMostSum - bound);
      int exponent = wanted > old ? wanted : wanted > 0 && wanted < old - kStay ? wanted : old;
      exponent = exponent < least ? least : exponent;
      exponent = exponent < 1 ? 1 : exponent > 253 ? 253 : exponent;
      const int fall = old - exponent;
      of_sums[h] = fall < -126 ? 0.f : power_of_two(fall < kExponentBias ? fall : kExponentBias);
      products[h] = float_of(u32(2 * kExponentBias - exponent) << 23);
      set_byte(exponents, b, h, exponent);
      set_byte(bounds, b, h, bound + fall > kTileSum ? bound + fall : kTileSum);
    }
    KV_UNROLL
    for (int i = 0; i < kScores; ++i) s[i] *= products[i / 2 % 2];
    KV_UNROLL
    for (int i = 0; i < kSums; ++i) o[i] *= of_sums[i / 2 % 2];
  }
  // Ends the sums of a work tile: they are relative to 1 again.
  template <int kBlocks, int kSums>
  KV_DEVICE void end(float (&o)[kBlocks][kSums]) const {
    KV_UNROLL
    for (int b = 0; b < kBlocks; ++b) {
      if (!warp_uniform(byte_of(exponents, b, 0) != 0)) continue;
      KV_UNROLL
      for (int h = 0; h < 2; ++h) {
        const float power = float_of(u32(byte_of(exponents, b, h)) << 23);
        KV_UNROLL
        for (int i = 2 * h; i < kSums; i += 4) o[b][i] *= power, o[b][i + 1] *= power;
      }
    }
  }
};

}  // namespace kv
