// Values of tokens that a row does not see. The probability of such a token is zero, but zero times NaN or infinity is
// NaN, and a scale far above all others takes precision from them. So in a tile that is not seen whole, before V is
// read:
//
//   a token that no row sees                     its staged row becomes zeros
//   a token that some rows see, with a V that    its staged row becomes zeros, and its score NaN for the rows that see
//   is no number                                 it: they become NaN, and the others do not
//
// Tiles that all rows see whole cost nothing.
// SPDX-License-Identifier: MIT
#pragma once
#include "kernels/decode/softmax.cuh"
#include "kernels/decode/stage_tile.cuh"
#include "kernels/decode/values.cuh"

namespace kv {

// Scores up to this hide a token: kMasked, or minus infinity by a feature.
constexpr float kHidden = -5e29f;

// Whether features hide a token from a row of the warp by its score. Windows and ranges hide by Features::cuts().
template <class Plan, class Features>
KV_DEVICE bool hides_by_score(const Scores<Plan> (&x)[Plan::kSubtiles]) {
  if constexpr (!Features::kHidesByScore) return false;
  float least = 0.f;
  KV_UNROLL
  for (int i = 0; i < Plan::kSubtiles * 4 * Plan::kColumnBlocks; ++i)
    least = smaller(least, x[i / (4 * Plan::kColumnBlocks)][i / 4 % Plan::kColumnBlocks][i % 4]);
  return any(least <= kHidden);
}

// Where a staged row has byte `at` of its scales, in layout planar. Swizzled scales have their own form. The argument of
// type Side lets forms be found that come after this fragment.
template <class Side>
KV_DEVICE SharedAddress scale_byte(Side, SharedAddress stage, int row, int at) {
  return stage + Side::kScalesAt + row * Side::kScalePitch + at;
}
// Called when staged rows were cleared. Bulk copies, which overwrite them later, have their own form.
template <class Side>
KV_DEVICE void end_clear(Side) {
  sync_warp();
}

// The side whose staged rows hold V: that of K if V is in K's rows.
template <class Plan, bool kIsInKeys>
struct StagedValues {
  using Side = typename Plan::V;
};
template <class Plan>
struct StagedValues<Plan, true> {
  using Side = typename Plan::K;
};

// Zeros a staged row. All lanes of the warp take part.
template <class Side>
KV_DEVICE void clear_row(SharedAddress stage, int row, u32 misalignment) {
  constexpr bool kByChunks = requires { Side::kHeads; } ? false
                                                         : !Side::kIsMisaligned && Side::kRowBytes % 16 == 0 &&
                                                               Side::kPitch % 16 == 0;
  constexpr int kUnit = kByChunks ? 16 : Side::kRowBytes % 2 == 0 ? 2 : 1;
  const SharedAddress rows = stage + (row & ~7) * Side::kPitch;
  KV_NO_UNROLL
  for (int at = lane() * kUnit; at < Side::kRowBytes; at += 32 * kUnit) {
    const SharedAddress to = rows + swizzled<Side::kSwizzle>((row & 7) * Side::kPitch + misalignment + at);
    if constexpr (kUnit == 16)
      store_shared_u128(to, 0, 0, 0, 0);
    else if constexpr (kUnit == 2)
      store_shared_u16(to, 0);
    else
      store_shared_u8(to, 0);
  }
  KV_NO_UNROLL
  for (int at = lane(); at < Side::kScaleRowBytes; at += 32) store_shared_u8(scale_byte(Side{}, stage, row, at), 0);
}

// A bit for each half of the words that is infinity or NaN: bit 0 for those of the low halves, bit 1 for the high ones.
template <int kWords>
KV_DEVICE u32 no_numbers(const u32 (&h)[kWords]) {
  u32 found = 0;
  KV_UNROLL
  for (int i = 0; i < kWords; ++i) {
    const u32 exponents = h[i] & 0x7c007c00u;
    found |= (exponents + 0x04000400u) & 0x80008000u;  // no carry leaves a half
  }
  return found >> 15 & 1u | found >> 30 & 2u;
}

// The tokens of a subtile whose V, as it is multiplied, has something that is no number: a bit a token, the same in all
// lanes. first: the subtile's first row.
template <class Plan>
KV_DEVICE u32 tokens_without_numbers(SharedAddress stage, int first, const u32 (&misalignment)[4], Table table) {
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
  u32 tokens = 0;
  KV_UNROLL
  for (int t = 0; t < 4; ++t) {
    u32 lanes = ballot((found >> t & 1u) != 0);
    lanes |= lanes >> 16, lanes |= lanes >> 8, lanes |= lanes >> 4;  // bit c: of some lane 4 g + c
    KV_UNROLL
    for (int c = 0; c < 4; ++c) tokens |= (lanes >> c & 1u) << (2 * c + (t & 1) + 8 * (t >> 1));
  }
  return tokens;
}

// Prepares V of kSubtiles x 16 tokens, from row `first` of the tile on, some of which some row does not see. x: their
// scores, as hidden tokens have them. Returns the tokens whose rows are zeros now, a bit a token.
template <class Plan>
KV_DEVICE u32 hide_values(Scores<Plan> (&x)[Plan::kSubtiles], SharedAddress stage, int first,
                          const u32 (&misalignment)[Plan::kSubtiles][4], const u8* first_row, i64 token_stride) {
  using V = typename Plan::V;
  constexpr bool kIsInKeys = requires { V::kIsInKeys; };
  using Staged = typename StagedValues<Plan, kIsInKeys>::Side;
  constexpr int kBlocks = Plan::kColumnBlocks;
  const int c = lane() & 3;
  u32 cleared = 0;
  KV_UNROLL
  for (int sub = 0; sub < Plan::kSubtiles; ++sub) {
    u32 seen = 0, mixed = 0;  // tokens that a row sees, and of these the ones that another row does not
    KV_UNROLL
    for (int half = 0; half < 2; ++half) {
      bool sees = false, hides = false;
      KV_UNROLL
      for (int i = 0; i < 2 * kBlocks; ++i) {
        const bool is_row = Plan::kRows % 8 == 0 || i / 2 * 8 + 2 * c + i % 2 < Plan::kRows,
                   is_hidden = x[sub][i / 2][2 * half + i % 2] <= kHidden;
        sees |= is_row && !is_hidden, hides |= is_row && is_hidden;
      }
      const u32 seeing = ballot(sees), hiding = ballot(hides);  // four lanes a token
      KV_UNROLL
      for (int g = 0; g < 8; ++g) {
        const u32 is_seen = seeing >> 4 * g & 15u ? 1u : 0u, is_mixed = is_seen && hiding >> 4 * g & 15u ? 1u : 0u;
        seen |= is_seen << (8 * half + g), mixed |= is_mixed << (8 * half + g);
      }
    }
    u32 clears = ~seen & 0xffffu;
    if (warp_uniform(mixed != 0)) {
      const u32 bad = mixed & tokens_without_numbers<Plan>(stage, first + sub * 16, misalignment[sub],
                                                           table_of_lane<V::kTableCopies>());
      clears |= bad;
      if (warp_uniform(bad != 0)) {
        KV_UNROLL
        for (int i = 0; i < 4 * kBlocks; ++i) {
          float& score = x[sub][i / 4][i % 4];
          if ((bad >> ((lane() >> 2) + 8 * (i % 4 / 2)) & 1u) && !(score <= kHidden)) score = float_of(0x7fffffffu);
        }
      }
    }
    KV_NO_UNROLL
    for (int t = 0; t < 16; ++t) {
      const int row = first + sub * 16 + t;
      if (warp_uniform(clears >> t & 1)) clear_row<Staged>(stage, row, row_misalignment<V>(first_row, token_stride, row));
    }
    cleared |= clears << sub * 16;
  }
  end_clear(Staged{});
  return cleared;
}

}  // namespace kv
