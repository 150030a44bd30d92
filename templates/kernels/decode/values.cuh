// Accumulation: O^T += V^T P^T for a staged tile, section by section of V's rows. Eight lanes share a row of V, and
// each of them unpacks its codes of two neighbouring tokens together, as half2 (unpack_f16.cuh), because tokens are the
// contraction here. Block scales differ from token to token, so they multiply P, in fp16. They are taken relative to
// the largest scale that the warp has seen (ValueScales), so that fp16 holds the product whatever the size of V:
//
//   O = 2^log2 x sum (P x scale / 2^log2) V       2^log2 at least as large as every scale seen, and raised when needed
//
// Formats whose values may leave fp16's range have their own ValueScales (kernels/decode/rare/wide_values.cuh,
// half_scales.cuh).
// SPDX-License-Identifier: MIT
#pragma once
#include "kernels/decode/unpack_outliers.cuh"
#include "kernels/decode/unpack_f16.cuh"
#include "kernels/decode/stage_tile.cuh"
#include "formats/minifloat.cuh"
#include "kernels/decode/scores.cuh"
#include "kernels/decode/softmax.cuh"

namespace kv {

// 2^log2 as the bits of a half, for -24 <= log2 <= 16. 16 gives infinity, which is above every finite half.
KV_DEVICE u32 half_power(int log2) { return log2 >= -14 ? u32(log2 + 15) << 10 : 1u << (log2 + 24); }

// Whether the values of a side, or their scales, may leave fp16's range.
template <class Side>
concept IsWide = requires {
  requires Side::kIsWide;
};
template <class Plan>
struct ValueScales;

// The scale of a group, which multiplies probabilities. Where codes count from a zero point, scale() is that of values.
template <class S>
KV_DEVICE float group_scale(SharedAddress block) {
  if constexpr (requires { S::group_scale(block); })
    return S::group_scale(block);
  else
    return S::scale(block, 0);
}

// Scales and minima, as halves, of values of two tokens: they multiply a value and are added to it. a, b: the scales
// of their blocks.
template <class S>
KV_DEVICE void scales_of_values(SharedAddress a, SharedAddress b, int index, u32& scales, u32& minima) {
  scales = pack_f16x2(S::scale(a, index), S::scale(b, index));
  minima = S::minimum_half(a, index) | S::minimum_half(b, index) << 16;
}

// Unpacks one lane read of each of the lane's four tokens. low: half2 of tokens first + 2c and first + 2c + 1; high:
// half2 of tokens first + 2c + 8 and first + 2c + 9. slice: of V's dimensions, where warps of a team divide them.
template <class Plan, class S>
KV_DEVICE void columns(u32 (&low)[S::kReadCodes], u32 (&high)[S::kReadCodes], SharedAddress stage, int first,
                       const u32 (&misalignment)[4], int group, int read, Table table,
                       [[maybe_unused]] const ValueScales<Plan>& scales, int slice = TeamWarp<Plan>::value_slice()) {
  using V = typename Plan::V;
  const int row_lane = (lane() >> 2) + slice * 8, c = lane() & 3;
  if constexpr (S::kIsMasked) {
    SharedAddress at[4], scales[4];
    const int row = first + 2 * c;
    KV_UNROLL
    for (int i = 0; i < 4; ++i) {
      at[i] = stage + (row + (i & 1) + 8 * (i >> 1)) * V::kPitch + misalignment[i] + group * S::kBlockStride;
      scales[i] = scales_of<V, S>(stage, misalignment[i], row + (i & 1) + 8 * (i >> 1), group, row_lane);
    }
    masked_column<S>(at[0], scales[0], at[1], scales[1], row_lane, low);
    masked_column<S>(at[2], scales[2], at[3], scales[3], row_lane, high);
  } else {
    u32 w[4][S::kReadWords];
    KV_UNROLL
    for (int i = 0; i < 4; ++i)
      load_codes<S>(stage + (first + 8 * (i >> 1)) * V::kPitch, (2 * c + (i & 1)) * V::kPitch + misalignment[i], group,
                    read, row_lane, w[i]);
    if constexpr (S::kIsJoined) {
      const u32 first_tokens[1] = {w[0][0] | w[2][0] << 16}, second_tokens[1] = {w[1][0] | w[3][0] << 16};
      u32 h[S::kUnpackedCodes];
      S::Read::column(first_tokens, second_tokens, h, table);
      KV_UNROLL
      for (int i = 0; i < S::kReadCodes; ++i) low[i] = h[i / 2 * 4 + i % 2], high[i] = h[i / 2 * 4 + 2 + i % 2];
    } else if constexpr (requires { S::kReadsWide; }) {
      S::Read::column(w[0], w[1], low, scales.inverse);
      S::Read::column(w[2], w[3], high, scales.inverse);
    } else {
      S::Read::column(w[0], w[1], low, table);
      S::Read::column(w[2], w[3], high, table);
    }
  }
}

// Applies scales and minima to the values that columns() has unpacked, for formats whose scales cannot multiply P.
template <class Plan, class S, class Scales>
KV_DEVICE void scale_columns(u32 (&low)[S::kReadCodes], u32 (&high)[S::kReadCodes], SharedAddress stage, int first,
                             const u32 (&misalignment)[4], int group, int read, const Scales& scales,
                             int slice = TeamWarp<Plan>::value_slice()) {
  using V = typename Plan::V;
  const int row_lane = (lane() >> 2) + slice * 8, row = first + 2 * (lane() & 3);
  const int index = scale_index<S>(read, row_lane);
  SharedAddress at[4];
  KV_UNROLL
  for (int i = 0; i < 4; ++i)
    at[i] = scales_of<V, S>(stage, misalignment[i], row + (i & 1) + 8 * (i >> 1), group, row_lane);
  u32 scale[2], minimum[2];
  KV_UNROLL
  for (int i = 0; i < 2; ++i) scales.template of_values<S>(at[2 * i], at[2 * i + 1], index, scale[i], minimum[i]);
  scale_pairs(low, scale[0], minimum[0]);
  scale_pairs(high, scale[1], minimum[1]);
}

// 1 / |C| of the lane's four tokens of a subtile, for formats that store the Euclidean length of a row: |C| is the
// length of the row that the codes alone stand for.
template <class Plan, class S>
KV_DEVICE void inverse_lengths(float (&inverse)[4], SharedAddress stage, int first, const u32 (&misalignment)[4],
                               int group, Table table, const ValueScales<Plan>& scales) {
  float squares[4] = {};
  KV_UNROLL
  for (int i = 0; i < S::kReads; ++i) {
    u32 low[S::kReadCodes], high[S::kReadCodes];
    columns<Plan, S>(low, high, stage, first, misalignment, group, i, table, scales);
    add_squares(low, squares[0], squares[1]);
    add_squares(high, squares[2], squares[3]);
  }
  KV_UNROLL
  for (int t = 0; t < 4; ++t) inverse[t] = div_rn(1.f, sqrt_rn(over_lanes<2, 3>(squares[t])));
}

// Puts together what lanes have found: bit t of `found` is of the lane's token 2c, 2c + 1, 2c + 8 or 2c + 9, bit 4 g of
// tokens[h] of token g + 8 h.
KV_DEVICE void tokens_of_lanes(u32 (&tokens)[2], u32 found) {
  tokens[0] = tokens[1] = 0;
  KV_UNROLL
  for (int t = 0; t < 4; ++t) {
    u32 lanes = ballot((found >> t & 1u) != 0);
    lanes |= lanes >> 16, lanes |= lanes >> 8, lanes |= lanes >> 4;  // bit c: of some lane 4 g + c
    KV_UNROLL
    for (int c = 0; c < 4; ++c) tokens[t / 2] |= (lanes >> c & 1u) << (8 * c + 4 * (t % 2));
  }
}
// Which of the two halves of a word are infinite or no number: bits 15 and 31.
KV_DEVICE u32 no_numbers_of(u32 halves) { return ((halves & 0x7c007c00u) + 0x04000400u) & 0x80008000u; }

// Block scales of V relative to 2^log2, the reference scale. log2 is the same in the whole warp, and 2^log2 is at least
// as large as every scale seen. Sums in O are relative to it.
template <class Plan>
struct ValueScales {
  using V = typename Plan::V;
  static constexpr int kLeast = -13, kMost = 16, kGroups = V::kScaledGroups;
  int log2 = kLeast;                             // exponent of the reference scale
  u32 limit = limit_of(kLeast),                  // 2^log2 as two halves, each with its top bit set (see fit)
      inverse = half_power(-kLeast) * 0x10001u;  // 2^-log2 as two halves
  // Scales of the present tile: of each group and subtile, those of tokens 2c, 2c + 1, and of 2c + 8, 2c + 9.
  u32 words[kGroups > 0 ? kGroups : 1][Plan::kSubtiles][2];

  KV_DEVICE void load(SharedAddress stage, int first, const u32 (&misalignment)[Plan::kSubtiles][4], Table table) {
    for_each(typename V::Sections{}, [&](auto section) {
      using S = decltype(section);
      if constexpr (S::kScalesGroups) {
        KV_UNROLL
        for (int i = 0; i < S::kGroups * Plan::kSubtiles; ++i)
          read<S>(i / Plan::kSubtiles, i % Plan::kSubtiles, stage, first, misalignment[i % Plan::kSubtiles], table);
      }
    });
  }
  // Is every scale at most 2^log2? Halves compare as integers: a top bit of `limit` survives where 2^log2 >= |scale|.
  KV_DEVICE bool fit() const { return (~(limit - largest_of_two()) & 0x80008000u) == 0; }

  template <class S>
  KV_DEVICE u32 relative(int group, int sub, int high) const {
    return mul_f16x2(words[S::kFirstScaled + group][sub][high], inverse);
  }
  template <class S>
  KV_DEVICE void of_values(SharedAddress a, SharedAddress b, int index, u32& scales, u32& minima) const {
    scales_of_values<S>(a, b, index, scales, minima);
  }
  // For a look at values that are not multiplied (kernels/decode/hidden_values.cuh).
  KV_DEVICE static ValueScales of_all() { return {}; }
  // Zeros the scales of the other tokens of subtile `sub`. tokens: as find_tokens() has them (hidden_values.cuh).
  KV_DEVICE void keep(int sub, const u32 (&tokens)[2]) {
    KV_UNROLL
    for (int i = 0; i < 2 * kGroups; ++i) {
      const u32 own = tokens[i % 2] >> 8 * (lane() & 3);
      words[i / 2][sub][i % 2] &= (own & 0xfu ? 0xffffu : 0u) | (own & 0xf0u ? 0xffff0000u : 0u);
    }
  }
  // Are all scales of the lane numbers?
  KV_DEVICE bool are_numbers() const { return no_numbers_of(largest_of_two()) == 0; }
  // Finds the tokens that have a scale that is no number.
  KV_DEVICE void no_numbers(int sub, u32 (&tokens)[2]) const {
    u32 found = 0;
    KV_UNROLL
    for (int i = 0; i < 2 * kGroups; ++i) {
      const u32 both = no_numbers_of(words[i / 2][sub][i % 2]);
      found |= (both >> 15 & 1u | both >> 30 & 2u) << i % 2 * 2;
    }
    tokens_of_lanes(tokens, found);
  }

  // The largest magnitude among the lane's scales, as the bits of a half.
  KV_DEVICE u32 largest() const {
    const u32 two = largest_of_two();
    return (two & 0xffffu) > two >> 16 ? two & 0xffffu : two >> 16;
  }
  // Raises log2 until the scales of all lanes fit, and rescales O. Rare.
  KV_DEVICE void raise(Outputs<Plan>& o) { raise(o, largest_of_warp(largest())); }
  KV_DEVICE void raise(Outputs<Plan>& o, u32 most) {
    const int needed = int(most >> 10) - 14, raised = needed < log2 ? log2 : needed > kMost ? kMost : needed;
    const float rescale_factor = exp2_fast(float(log2 - raised));
    log2 = raised, limit = limit_of(log2), inverse = half_power(-log2) * 0x10001u;
    constexpr int kSums = Plan::kValueDim / 4 / Plan::kValueShare;  // sums of one block of columns
    KV_UNROLL
    for (int i = 0; i < Plan::kOwnBlocks * kSums; ++i) o[i / kSums][i / 4 % (kSums / 4)][i % 4] *= rescale_factor;
  }

 private:
  KV_DEVICE static u32 limit_of(int log2) { return half_power(log2) * 0x10001u | 0x80008000u; }
  KV_DEVICE u32 largest_of_two() const {
    u32 most = words[0][0][0];
    KV_UNROLL
    for (int i = 1; i < kGroups * Plan::kSubtiles * 2; ++i)
      most = larger_f16x2(most, words[i / (2 * Plan::kSubtiles)][i / 2 % Plan::kSubtiles][i % 2]);
    return most;
  }
  template <class S>
  KV_DEVICE void read(int group, int sub, SharedAddress stage, int first, const u32 (&misalignment)[4],
                      [[maybe_unused]] Table table) {
    const int token = first + sub * 16 + 2 * (lane() & 3), row_lane = TeamWarp<Plan>::value_slice() * 8;
    if constexpr (S::kScalesAreDense) {  // one half a token: two tokens are a word
      KV_UNROLL
      for (int high = 0; high < 2; ++high)
        words[S::kFirstScaled + group][sub][high] = load_staged_u32(scales_of<V, S>(stage, 0, token + 8 * high, 0, 0));
      return;
    }
    u32 half[4];
    [[maybe_unused]] float inverse[4];
    if constexpr (S::kRenormalises)
      inverse_lengths<Plan, S>(inverse, stage, first + sub * 16, misalignment, group, table, *this);
    KV_UNROLL
    for (int t = 0; t < 4; ++t) {
      const SharedAddress at = scales_of<V, S>(stage, misalignment[t], token + (t & 1) + 8 * (t >> 1), group, row_lane);
      if constexpr (S::kRenormalises)
        half[t] = f16_from_f32(S::scale(at, 0) * inverse[t]);
      else
        half[t] = S::scale_half(at, 0);
    }
    words[S::kFirstScaled + group][sub][0] = half[0] | half[1] << 16;
    words[S::kFirstScaled + group][sub][1] = half[2] | half[3] << 16;
  }
};

// The running state of a warp over its tiles of a KV split.
template <class Plan>
struct Sums {
  Outputs<Plan> o = {};            // unnormalised output, in units of 2^value_scales.log2
  Softmax<Plan> softmax;           // reference maxima and denominators
  ValueScales<Plan> value_scales;  // scale of O
};

// Misalignment (unaligned_rows.cuh) of the lane's rows 2c, 2c + 1, 2c + 8, 2c + 9 of each subtile.
template <class Side, int kSubtiles>
KV_DEVICE void value_misalignments(u32 (&misalignment)[kSubtiles][4], const u8* first_row, i64 token_stride) {
  KV_UNROLL
  for (int i = 0; i < kSubtiles * 2; ++i) {
    misalignment[i / 2][i % 2] = row_misalignment<Side>(first_row, token_stride, 2 * (lane() & 3) + i % 2);
    misalignment[i / 2][i % 2 + 2] = upper_misalignment<Side>(misalignment[i / 2][i % 2], token_stride);
  }
}

// O^T += V^T P^T for one section of V and kSubtiles x 16 tokens from row `first` on. misalignment: see
// value_misalignments.
template <class Plan, class S>
KV_DEVICE void accumulate_section(Outputs<Plan>& o, const ValueScales<Plan>& scales,
                                  const u32 (&p)[Plan::kSubtiles][Plan::kOwnBlocks][2], SharedAddress stage, int first,
                                  const u32 (&misalignment)[Plan::kSubtiles][4], Table table) {
  using V = typename Plan::V;
  constexpr int kTiles = S::kReadCodes / 2;  // m16 tiles of a lane read: eight lanes bring two codes each
  KV_UNROLL
  for (int group = 0; group < S::kGroups; ++group) {
    KV_UNROLL
    for (int sub = 0; sub < Plan::kSubtiles; ++sub) {
      u32 b[Plan::kOwnBlocks][2];
      KV_UNROLL
      for (int n = 0; n < Plan::kOwnBlocks; ++n) b[n][0] = p[sub][n][0], b[n][1] = p[sub][n][1];
      if constexpr (S::kScalesGroups && !Plan::kScalesProbabilities) {
        const u32 low = scales.template relative<S>(group, sub, 0), high = scales.template relative<S>(group, sub, 1);
        KV_UNROLL
        for (int n = 0; n < Plan::kOwnBlocks; ++n)
          b[n][0] = mul_f16x2(b[n][0], low), b[n][1] = mul_f16x2(b[n][1], high);
      }
      KV_UNROLL
      for (int read = 0; read < S::kReads; ++read) {
        u32 low[S::kReadCodes], high[S::kReadCodes];
        columns<Plan, S>(low, high, stage, first + sub * 16, misalignment[sub], group, read, table, scales);
        if constexpr (S::kScalesValues)
          scale_columns<Plan, S>(low, high, stage, first + sub * 16, misalignment[sub], group, read, scales);
        KV_UNROLL
        for (int i = 0; i < kTiles * Plan::kOwnBlocks; ++i) {
          const int tile = i / Plan::kOwnBlocks, n = i % Plan::kOwnBlocks;
          mma_16x8x16(o[n][S::kFirst / 16 / Plan::kValueShare + (group * S::kReads + read) * kTiles + tile],
                      low[2 * tile], low[2 * tile + 1], high[2 * tile], high[2 * tile + 1], b[n][0], b[n][1]);
        }
      }
    }
  }
}

// When V is hidden from rows: before its scales are looked at, or when they do not fit, by clearing staged rows or by
// the scales in registers.
enum class Hiding { kFirst, kLate, kByScales };
template <class Plan>
constexpr Hiding hiding_of() {
  using V = typename Plan::V;
  if (!V::kCodesAreNumbers || !(V::kScalesGroups || IsWide<V>)) return Hiding::kFirst;
  if (Plan::kTeam > 1)
    return Plan::kScalesProbabilities ? Hiding::kByScales : IsWide<V> ? Hiding::kLate : Hiding::kFirst;
  return IsWide<V> ? Hiding::kLate : Hiding::kByScales;
}

// The fragment kernels/decode/hidden_values.cuh defines these, for plans whose rows may not see a token.
template <class Plan, class Features>
KV_DEVICE bool hides_by_score(const Scores<Plan> (&x)[Plan::kSubtiles]);
template <class Plan>
KV_DEVICE bool hide_values(Scores<Plan> (&x)[Plan::kSubtiles], SharedAddress stage, int first,
                           const u32 (&misalignment)[Plan::kSubtiles][4], const u8* first_row, i64 token_stride);
template <class Plan, class ScalesOfTile>
KV_DEVICE void hide_scales(Scores<Plan> (&x)[Plan::kSubtiles], ScalesOfTile& scales);

}  // namespace kv
