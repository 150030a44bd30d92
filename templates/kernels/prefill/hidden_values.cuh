// Values of tokens that a query row may not see, in plans that hide tokens. A hidden token has the probability zero,
// but zero times NaN or infinity is NaN, so the products would bring memory that nobody wrote into the output. In tiles
// that a row of the work tile may not see whole, values that are no finite numbers are therefore no operands:
//
//   producer   after its rows are in the operand, a warp looks through them. In a row that has such a value, each of
//              them becomes -0, and a -0 becomes 0. The token's bit is set among the bits of the stage.
//   consumer   where a bit is set, NaN is added to the sums of the rows that see the token, in the dimensions where the
//              operand has a -0.
//
// So a row becomes NaN only by what it sees itself, and its denominator is left alone. Tiles that all rows see whole
// are not looked at, unless a feature hides tokens by their scores. Such a feature is asked for each of these tokens
// anew, with the score 0.
// SPDX-License-Identifier: MIT
#pragma once
#include "kernels/prefill/consumer.cuh"

namespace kv {

// Whether a row of the work tile may not see a token of the tile.
template <HidesTokens Plan>
KV_DEVICE bool may_hide(const WorkTile& work, int tile) {
  return Plan::kHidesByScore || (Plan::kHidesFirst && tile < work.first_whole_tile) || tile >= work.end_whole_tile;
}
// The bits of a tile's tokens in the stage of V that it is in: those of tokens whose row has had such values.
template <HidesTokens Plan>
KV_DEVICE SharedAddress cleared_tokens(int n) {
  return Plan::kClearedAt + n % Plan::kStages * (Plan::kTokens / 8);
}

// By a warp that has brought kTile tokens, from `token` of the tile on, to stage n of V. Lane r + kTile i looks through
// row r: eight lanes that load together have eight rows, and so no bank conflict.
template <HidesTokens Plan>
KV_DEVICE void clear_values(const WorkTile& work, int tile, int n, int token) {
  constexpr int kTile = Plan::kTile, kStep = 32 / kTile,
                kChunks = Plan::kCopiesRows ? Plan::V::kRowBytes / 16 : Plan::kValueDim / 8;
  constexpr u32 kInfinity = 0x7c00, kMinusZero = 0x8000;
  if (!warp_uniform(may_hide<Plan>(work, tile))) return;
  sync_warp();  // all lanes' rows are there
  // Hidden, so that the loop over tiles holds nothing of what follows in registers.
  token = int(hide_from_optimizer(u32(token))), n = int(hide_from_optimizer(u32(n)));
  const SharedAddress operand = Stages<Plan>::operand(true, n);
  const int row = lane() % kTile, first = lane() / kTile;
  u32 found = 0;
  KV_NO_UNROLL
  for (int chunk = first; chunk < kChunks; chunk += kStep) {
    u32 h[4];
    load_shared_u128(h, operand_chunk<Plan::kTokens>(operand, token + row, chunk));
    KV_UNROLL
    for (int j = 0; j < 4; ++j) found |= (h[j] & 0x7fff7fffu) + 0x04000400u;  // the top bit: its exponent is all ones
  }
  u32 tokens = ballot((found & 0x80008000u) != 0);
  KV_UNROLL
  for (int step = kTile; step < 32; step <<= 1) tokens |= tokens >> step;
  if (lane() == 0) {
    const SharedAddress at = cleared_tokens<Plan>(n) + token / 8;
    if constexpr (kTile == 32)
      store_shared_u32(at, tokens);
    else if constexpr (kTile == 16)
      store_shared_u16(at, tokens);
    else
      store_shared_u8(at, tokens);
  }
  if (!warp_uniform(tokens != 0) || !(tokens >> row & 1)) return;
  KV_NO_UNROLL
  for (int i = first * 8; i < kChunks * 8; i = i % 8 < 7 ? i + 1 : i + kStep * 8 - 7) {
    const SharedAddress at = operand_chunk<Plan::kTokens>(operand, token + row, i / 8) + i % 8 * 2;
    const u32 half = load_shared_u16(at);
    if ((half & kInfinity) == kInfinity || half == kMinusZero)
      store_shared_u16(at, half == kMinusZero ? 0u : kMinusZero);
  }
}

// Adds NaN to the sums of the lane's rows g and g + 8 that see the token, where the token's row has a -0. chunk: that
// of the first sums.
template <class Plan, int kSums>
KV_DEVICE void corrupt_sums(float (&o)[kSums], const bool (&sees)[2], SharedAddress values, int token, int chunk) {
  const u32 corrupt[2] = {sees[0] ? 0x7fffffffu : 0u, sees[1] ? 0x7fffffffu : 0u};
  KV_UNROLL
  for (int i = 0; i < kSums; i += 4) {
    const u32 pair = load_shared_u32(operand_chunk<Plan::kTokens>(values, token, chunk + i / 4) + int(lane() & 3) * 4);
    KV_UNROLL
    for (int j = 0; j < 2; ++j)
      if ((pair >> 16 * j & 0xffff) == 0x8000) o[i + j] += float_of(corrupt[0]), o[i + 2 + j] += float_of(corrupt[1]);
  }
}
// Spoils the sums of rows that see tokens of stage n whose values were cleared. row: the lane's first row.
template <HidesTokens Plan, class Rule, int kBlocks, int kSums>
KV_DEVICE void corrupt_rows(const Rule& rule, float (&o)[kBlocks][kSums], const WorkTile& work, int row, int tile,
                          int n) {
  if (!warp_uniform(may_hide<Plan>(work, tile))) return;
  u32 some = 0;
  KV_UNROLL
  for (int i = 0; i < Plan::kTokens / 32; ++i) some |= load_shared_u32(cleared_tokens<Plan>(n) + i * 4);
  if (!warp_uniform(some != 0)) return;
  row = int(hide_from_optimizer(u32(row))), tile = int(hide_from_optimizer(u32(tile)));  // as above
  n = int(hide_from_optimizer(u32(n)));
  const int chunk = Plan::kSharesRows ? (warp() - Plan::kWarps) / 4 * (kSums / 4) : 0;
  KV_NO_UNROLL
  for (int token = 0; token < Plan::kTokens; ++token) {
    if (!warp_uniform(load_shared_u8(cleared_tokens<Plan>(n) + token / 8) >> token % 8 & 1)) continue;
    KV_UNROLL
    for (int b = 0; b < kBlocks; ++b) {
      bool sees[2];
      KV_UNROLL
      for (int h = 0; h < 2; ++h) sees[h] = rule.sees(work, row + b * kBlockRows + 8 * h, tile * Plan::kTokens + token);
      if (any(sees[0] || sees[1])) corrupt_sums<Plan>(o[b], sees, Stages<Plan>::operand(true, n), token, chunk);
    }
  }
}

}  // namespace kv
