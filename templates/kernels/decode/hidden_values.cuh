// Values of tokens that a row does not see. The probability of such a token is zero, but zero times NaN or infinity is
// NaN, and a scale far above all others takes precision from them. So in a tile that is not seen whole, before V is
// read:
//
//   a token that no row sees                     its staged row becomes zeros
//   a token that some rows see, with a V that    its staged row becomes zeros, and its score NaN for the rows that see
//   is no number                                 it: they become NaN, and the others do not
//
// Codes of most formats are numbers, whatever their bytes. Then V is no number only by its scales, which ValueScales
// looks at in any case, and nothing else is done while they fit (Hiding). Tiles that all rows see whole cost
// nothing. V of a tile that no row sees is not read, where a warp multiplies for itself.
// SPDX-License-Identifier: MIT
#pragma once
#include "kernels/decode/softmax.cuh"
#include "kernels/decode/rare/staged_stores.cuh"
#include "kernels/decode/values.cuh"

namespace kv {

// Scores up to this hide a token: kMasked, or minus infinity by a feature.
constexpr float kHidden = -5e29f;
constexpr u32 kEveryToken = 0x11111111u;  // of eight tokens, as words of tokens have them: bit 4 g for token g

// Whether features hide one of the lane's tokens by its score. Windows and ranges hide by Features::cuts().
template <class Plan, class Features>
KV_DEVICE bool hides_by_score(const Scores<Plan> (&x)[Plan::kSubtiles]) {
  if constexpr (!Features::kHidesByScore) return false;
  float least = 0.f;
  KV_UNROLL
  for (int i = 0; i < Plan::kSubtiles * 4 * Plan::kColumnBlocks; ++i)
    least = smaller(least, x[i / (4 * Plan::kColumnBlocks)][i / 4 % Plan::kColumnBlocks][i % 4]);
  return least <= kHidden;
}

// Where a staged row has byte `at` of its scales, in layout planar. Swizzled scales have their own form. The argument
// of type Side lets forms be found that come after this fragment.
template <class Side>
KV_DEVICE SharedAddress scale_byte(Side, SharedAddress stage, int row, int at) {
  return stage + Side::kScalesAt + row * Side::kScalePitch + at;
}

// Zeros staged rows of a subtile. clears: bit 4 g of clears[h] is set for row g + 8 h. first: the subtile's first row.
template <class V, class Side>
KV_DEVICE void clear_rows(const u32 (&clears)[2], SharedAddress stage, int first, const u8* first_row,
                          i64 token_stride) {
  constexpr bool kByChunks = !requires { Side::kHeads; }
  &&!Side::kIsMisaligned && Side::kRowBytes % 16 == 0 && Side::kPitch % 16 == 0;
  constexpr int kUnit = kByChunks                  ? 16
                        : Side::kRowBytes % 2 == 0 ? 2
                                                   : 1,
                kOfRow = Side::kRowBytes / kUnit, kScales = Side::kScaleRowBytes;
  KV_NO_UNROLL
  for (int i = lane(); i < 16 * kOfRow; i += 32) {
    const int row = i / kOfRow;
    if (!((row < 8 ? clears[0] : clears[1]) >> row % 8 * 4 & 1u)) continue;
    const u32 below = row_misalignment<V>(first_row, token_stride, row % 8),
              misalignment = row < 8 ? below : upper_misalignment<V>(below, token_stride);
    const SharedAddress to = stage + (first + row / 8 * 8) * Side::kPitch +
                             swizzled<Side::kSwizzle>(row % 8 * Side::kPitch + misalignment + i % kOfRow * kUnit);
    if constexpr (kUnit == 16)
      store_shared_u128(to, 0, 0, 0, 0);
    else if constexpr (kUnit == 2)
      store_shared_u16(to, 0);
    else
      store_shared_u8(to, 0);
  }
  KV_NO_UNROLL
  for (int i = lane(); i < 16 * kScales; i += 32) {
    const int row = i / (kScales > 0 ? kScales : 1), at = i % (kScales > 0 ? kScales : 1);
    if ((row < 8 ? clears[0] : clears[1]) >> row % 8 * 4 & 1u)
      store_shared_u8(scale_byte(Side{}, stage, first + row, at), 0);
  }
}

// A bit for each half of the words that is infinity or NaN: bit 0 for those of the low halves, bit 1 for the high ones.
template <int kWords>
KV_DEVICE u32 no_numbers(const u32 (&h)[kWords]) {
  u32 found = 0;
  KV_UNROLL
  for (int i = 0; i < kWords; ++i) found |= no_numbers_of(h[i]);
  return found >> 15 & 1u | found >> 30 & 2u;
}

// Finds the tokens of a subtile whose V, as it is multiplied, has something that is no number: bit 4 g of tokens[h] for
// token g + 8 h, the same in all lanes. first: the subtile's first row.
template <class Plan>
KV_DEVICE void tokens_without_numbers(u32 (&tokens)[2], SharedAddress stage, int first, const u32 (&misalignment)[4],
                                      Table table) {
  using V = typename Plan::V;
  const auto scales = ValueScales<Plan>::of_all();
  u32 found = 0;  // bits of the lane's tokens 2c, 2c + 1, 2c + 8 and 2c + 9
  for_each(typename V::Sections{}, [&](auto section) {
    using S = decltype(section);
    KV_NO_UNROLL
    for (int i = 0; i < Plan::kValueShare * S::kGroups * S::kReads; ++i) {
      const int slice = i / (S::kGroups * S::kReads), group = i / S::kReads % S::kGroups, read = i % S::kReads;
      u32 low[S::kReadCodes], high[S::kReadCodes];
      columns<Plan, S>(low, high, stage, first, misalignment, group, read, table, scales, slice);
      if constexpr (S::kScalesValues)
        scale_columns<Plan, S>(low, high, stage, first, misalignment, group, read, scales, slice);
      found |= no_numbers(low) | no_numbers(high) << 2;
      if constexpr (S::kScalesGroups) {
        KV_UNROLL
        for (int t = 0; t < 4; ++t) {
          const float scale = group_scale<S>(scales_of<V, S>(
              stage, misalignment[t], first + 2 * (lane() & 3) + (t & 1) + 8 * (t >> 1), group, slice * 8));
          found |= u32(!(absolute(scale) < float_of(0x7f800000u))) << t;
        }
      }
    }
  });
  tokens_of_lanes(tokens, found);
}

// Finds the tokens of a subtile that some row sees, or does not see: in word h, one or more of the bits 4 g to 4 g + 3
// for token g + 8 h, the same in all lanes. x: their scores, as hidden tokens have them.
template <class Plan, bool kAreSeen>
KV_DEVICE void find_tokens(u32 (&tokens)[2], const float (&x)[Plan::kColumnBlocks][4]) {
  KV_UNROLL
  for (int half = 0; half < 2; ++half) {
    bool is_found = false;
    KV_UNROLL
    for (int i = 0; i < 2 * Plan::kColumnBlocks; ++i) {
      const bool is_row = Plan::kRows % 8 == 0 || i / 2 * 8 + 2 * (lane() & 3) + i % 2 < Plan::kRows,
                 is_seen = !(x[i / 2][2 * half + i % 2] <= kHidden);
      is_found |= is_row && is_seen == kAreSeen;
    }
    tokens[half] = ballot(is_found);  // four lanes a token
  }
}
// Bit 4 g of what find_tokens() has found alone.
KV_DEVICE u32 first_bits(u32 tokens) {
  tokens |= tokens >> 1, tokens |= tokens >> 2;
  return tokens & kEveryToken;
}
// Gives rows that see one of the tokens `bad` a score of NaN.
template <class Plan>
KV_DEVICE void corrupt_scores(float (&x)[Plan::kColumnBlocks][4], const u32 (&bad)[2]) {
  KV_UNROLL
  for (int i = 0; i < 4 * Plan::kColumnBlocks; ++i) {
    float& score = x[i / 4][i % 4];
    if ((bad[i % 4 / 2] >> (lane() & ~3) & 1u) && !(score <= kHidden)) score = float_of(0x7fffffffu);
  }
}

// Whether a row sees one of the tokens of a tile. A team takes V of all its tiles.
template <class Plan>
KV_DEVICE bool sees_tile(const u32 (&seen)[Plan::kSubtiles][2]) {
  u32 of_tile = 0;
  KV_UNROLL
  for (int i = 0; i < 2 * Plan::kSubtiles; ++i) of_tile |= seen[i / 2][i % 2];
  return Plan::kTeam > 1 || warp_uniform(of_tile != 0);
}

// Hides V whose codes are numbers by its scales, which are in registers: ValueScales, or TokenScales of a team.
template <class Plan, class ScalesOfTile>
KV_DEVICE void hide_scales(Scores<Plan> (&x)[Plan::kSubtiles], ScalesOfTile& scales) {
  u32 seen[Plan::kSubtiles][2];
  KV_UNROLL
  for (int sub = 0; sub < Plan::kSubtiles; ++sub) {
    find_tokens<Plan, true>(seen[sub], x[sub]);
    scales.keep(sub, seen[sub]);
  }
  if (!any(!scales.are_numbers())) return;
  KV_UNROLL
  for (int sub = 0; sub < Plan::kSubtiles; ++sub) {
    u32 hidden[2], bad[2], good[2];
    find_tokens<Plan, false>(hidden, x[sub]);
    scales.no_numbers(sub, bad);
    KV_UNROLL
    for (int half = 0; half < 2; ++half) {
      bad[half] &= first_bits(seen[sub][half]) & first_bits(hidden[half]);
      good[half] = bad[half] ^ kEveryToken;
    }
    scales.keep(sub, good);
    corrupt_scores<Plan>(x[sub], bad);
  }
}

// Prepares V of kSubtiles x 16 tokens, from row `first` of the tile on, some of which some row does not see. x: their
// scores, as hidden tokens have them. Returns false if V need not be read, and is left as it is.
template <class Plan>
KV_DEVICE bool hide_values(Scores<Plan> (&x)[Plan::kSubtiles], SharedAddress stage, int first,
                           const u32 (&misalignment)[Plan::kSubtiles][4], const u8* first_row, i64 token_stride) {
  using V = typename Plan::V;
  using Staged = StagedValues<Plan>;
  u32 seen[Plan::kSubtiles][2];
  KV_UNROLL
  for (int sub = 0; sub < Plan::kSubtiles; ++sub) find_tokens<Plan, true>(seen[sub], x[sub]);
  if (!sees_tile<Plan>(seen)) return false;
  KV_UNROLL
  for (int sub = 0; sub < Plan::kSubtiles; ++sub) {
    u32 hidden[2], clears[2], in_part[2];
    find_tokens<Plan, false>(hidden, x[sub]);
    KV_UNROLL
    for (int half = 0; half < 2; ++half) {
      const u32 seen_tokens = first_bits(seen[sub][half]);
      clears[half] = seen_tokens ^ kEveryToken, in_part[half] = seen_tokens & first_bits(hidden[half]);
    }
    if (warp_uniform((in_part[0] | in_part[1]) != 0)) {
      u32 bad[2];
      tokens_without_numbers<Plan>(bad, stage, first + sub * 16, misalignment[sub], table_of_lane<V::kTableCopies>());
      bad[0] &= in_part[0], bad[1] &= in_part[1];
      clears[0] |= bad[0], clears[1] |= bad[1];
      corrupt_scores<Plan>(x[sub], bad);
    }
    if (warp_uniform((clears[0] | clears[1]) != 0))
      clear_rows<V, Staged>(clears, stage, first + sub * 16, first_row, token_stride);
  }
  end_stores(Staged{});
  return true;
}

}  // namespace kv
