// Powers of two of tokens, in plans whose K or V holds numbers beyond the range of fp16. Operands are halves, so a row
// whose largest number is not between 2^kLeast and 2^kMost as a half is unpacked relative to a power of two of its own:
//
//   producer   the bound of a row follows from its scales and the largest code, or from its elements. Where it is out
//              of that range, they are multiplied by 2^-e before they are rounded, and e is stored beside the stage. A
//              warp converts its tokens without exponents, and again if one of them needs one
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

// fits: whether a lane's part of a row is halves as it is. fit: reads a row again relative to a power of two, if its
// numbers need one, and returns the exponent, which the lanes of a row have in common. reads: as load() has made them.
template <class Range, class Side, class S>
struct RowFit {
  using Reads = RowReads<S, false>;
  static constexpr int kReads = S::kGroups * S::kReads;
  static constexpr bool kHasScales = S::kScalesValues || S::kScalesGroups || S::kRenormalises;

  KV_DEVICE static u32 larger_bits(u32 a, u32 b) { return a > b ? a : b; }
  // The largest of the lane's scales as halves, of its bfloats, or of its float32 scale's upper half.
  KV_DEVICE static u32 most(const Reads& reads) {
    if constexpr (!kHasScales) {
      u32 pairs = 0;
      KV_UNROLL
      for (int i = 0; i < kReads; ++i) {
        KV_UNROLL
        for (int w = 0; w < S::kReadWords; ++w) pairs = larger_f16x2(pairs, reads.codes[i][w]);
      }
      return larger_bits(pairs >> 16, pairs & 0xffffu);
    } else if constexpr (S::kRenormalises) {
      return reads.scale[0] >> 16 & 0x7fffu;
    } else {
      u32 scale = 0;
      KV_UNROLL
      for (int i = 0; i < kReads; ++i) scale = larger_bits(scale, reads.scale[i] & 0x7fffu);
      return scale;
    }
  }
  KV_DEVICE static bool fits(const Reads& reads) {
    const u32 of_row = most(reads);
    bool fits = of_row - Range::kLeast <= Range::kMost - Range::kLeast;
    if constexpr (S::kScalesValues) {
      KV_UNROLL
      for (int i = 0; i < kReads; ++i) fits &= (reads.minimum[i] & 0x7fffu) <= Range::kMostMinimum;
    } else if constexpr (S::kAddsMinima) {
      KV_UNROLL
      for (int i = 0; i < kReads; ++i) fits &= absolute(float_of(reads.minimum[i])) <= power_of_two(kMostExponent - 1);
    }
    return fits;
  }
  KV_DEVICE static float minimum(SharedAddress scales, int at) {
    if constexpr (S::kScalesValues)
      return f32_from_f16(S::minimum_half(scales, at));
    else if constexpr (S::kAddsMinima)
      return S::minimum(scales, at);
    return 0.f;
  }
  // All lanes of the warp take part.
  KV_DEVICE static int fit(Reads& reads, SharedAddress stage, int row, u32 misalignment, int c) {
    const float kInfinity = float_of(0x7f800000u);
    const auto place = [&](int i) { return scales_of<Side, S>(stage, misalignment, row, i / S::kReads, c); };
    const auto index = [&](int i) { return S::kScalesValues ? scale_index<S>(i % S::kReads, c) : 0; };
    float bound = 0.f, scale = 1.f;
    if constexpr (kHasScales) {
      if constexpr (Range::kRoundsScales) scale = 0.f;
      KV_UNROLL
      for (int i = 0; i < kReads; ++i) {
        const float of_read =
            absolute(S::scale(place(i), index(i))) * Range::kLargestCode + absolute(minimum(place(i), index(i)));
        if (of_read < kInfinity) bound = larger(bound, of_read);
        if constexpr (Range::kRoundsScales) scale = larger(scale, absolute(S::scale(place(i), index(i))));
      }
    } else {
      bound = float_of(most(reads) << 16);
      if (!(bound < kInfinity)) bound = 0.f;
    }
    KV_UNROLL
    for (int mask = 1; mask < 4; mask <<= 1) {
      bound = larger(bound, shfl_xor(bound, mask));
      if constexpr (kHasScales && Range::kRoundsScales) scale = larger(scale, shfl_xor(scale, mask));
    }
    const int exponent = exponent_of_row(bound, scale);
    const float factor = power_of_two(-exponent);
    if (exponent == 0) return 0;
    KV_UNROLL
    for (int i = 0; i < kReads; ++i) {
      if constexpr (!kHasScales) {
        KV_UNROLL
        for (int w = 0; w < S::kReadWords; ++w) {
          const u32 pair = reads.codes[i][w];
          reads.codes[i][w] = pack_bf16x2(f32_from_bf16(pair & 0xffff) * factor, f32_from_bf16(pair >> 16) * factor);
        }
      } else {
        const float scale = S::scale(place(i), index(i)) * factor;
        reads.scale[i] = S::kRenormalises ? bits_of(scale) : u32(f16_from_f32(scale));
        if constexpr (S::kScalesValues)
          reads.minimum[i] = f16_from_f32(minimum(place(i), index(i)) * factor);
        else if constexpr (S::kAddsMinima)
          reads.minimum[i] = bits_of(minimum(place(i), index(i)) * factor);
      }
    }
    return exponent;
  }
};

template <class Plan, bool kIsV>
requires(HasExponents<Plan, kIsV>) struct TokenExponents<Plan, kIsV> {
  static constexpr bool kHas = true;
  static constexpr SharedAddress kAt =
      Plan::kExponentsAt + (kIsV && Plan::kHasKeyExponents ? 1 : 0) * (Plan::kStages * Plan::kTokens);
  static constexpr u32 kNone = kExponentBias * 0x01010101u;  // the exponents of four tokens that have none
  // Where the exponents of stage n are, a byte a token. Producers write those of rows that leave the range of halves,
  // and those that stood there before.
  KV_DEVICE static SharedAddress stage(int n) { return kAt + n % Plan::kStages * Plan::kTokens; }
  // All threads of the block call it before the first stage is filled.
  KV_DEVICE static void open() {
    constexpr int kThreads = (Plan::kWarps + Plan::kConsumerWarps) * 32;
    for (int i = thread(); i < Plan::kStages * Plan::kTokens / 4; i += kThreads)
      store_shared_u32(kAt + 4 * i, kNone);
  }

  template <class Side, class S>
  KV_DEVICE static bool fits(const RowReads<S, false>& reads) {
    return RowFit<typename Plan::template Range<kIsV>, Side, S>::fits(reads);
  }
  // Reads a row that the lane has loaded again, relative to its power of two, and stores the exponent. Returns whether
  // the row has one.
  template <class Side, class S>
  KV_DEVICE static bool take(RowReads<S, false>& reads, SharedAddress from, int row, u32 misalignment, int n,
                             int token) {
    const int c = lane() & 3,
              exponent = RowFit<typename Plan::template Range<kIsV>, Side, S>::fit(reads, from, row, misalignment, c);
    if (c == 0) store_shared_u8(stage(n) + token, u32(exponent + kExponentBias));
    return exponent != 0;
  }
  // Whether a token of the stage has an exponent, or any lane says so. The stage is full.
  KV_DEVICE static bool has_some(int n, bool some = false) {
    static_assert(Plan::kTokens % 128 == 0, "each lane looks at four tokens");
    KV_UNROLL
    for (int i = 0; i < Plan::kTokens; i += 128) some |= load_shared_u32(stage(n) + i + 4 * lane()) != kNone;
    return any(some);
  }
  // Multiplies numbers of the lane's tokens by their powers of two.
  KV_DEVICE static void scale(float (&s)[64], int n) {
    KV_UNROLL
    for (int i = 0; i < 64; i += 4) {
      const u32 pair = load_shared_u16(stage(n) + 2 * int(lane() & 3) + i * 2);
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
  template <int kSums>
  KV_DEVICE void fit(float (&s)[64], float (&o)[kSums], const float (&before)[2], int n, int b) {
    using Tokens = TokenExponents<Plan, true>;
    wait_phase(Stages<Plan>::full(true, n), Stages<Plan>::parity(n));
    if (!Tokens::has_some(n, byte_of(exponents, b, 0) != 0)) return;
    Tokens::scale(s, int(hide_from_optimizer(u32(n))));
    float products[2], of_sums[2];
    RowSoftmax::largest_of_rows(s, 1.f, products);
    KV_UNROLL
    for (int h = 0; h < 2; ++h) {
      float sum = before[h];  // of a row that has no E
      sum += shfl_xor(sum, 1);
      sum += shfl_xor(sum, 2);
      const bool is_first = byte_of(exponents, b, h) == 0;
      const int old = is_first ? kExponentBias : byte_of(exponents, b, h),
                bound = is_first ? (sum == 0.f ? 0 : kFirstSum) : byte_of(bounds, b, h),
                wanted = int(bits_of(products[h]) >> 23), least = old - (kMostSum - bound);
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
    for (int i = 0; i < 64; ++i) s[i] *= products[i / 2 % 2];
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
