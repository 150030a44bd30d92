// The rotation of a tile as a product with its 128 x 128 matrix, by warpgroups: dense matrices, and Walsh-Hadamard transforms with their
// signs, as one. Entries that one half cannot hold stand in two, exact to 2^-22: an operand of high halves, and behind it one of rests.
// SPDX-License-Identifier: MIT
#pragma once
#include "core/simt.cuh"
#include "core/tiles.cuh"
#include "core/wgmma.cuh"

namespace kv {

// The signed transform's entry in row i, column k, times sqrt(128).
template <class Plan>
KV_DEVICE float wht_entry(int i, int k) {
  const u32 parity =
      u32(count_bits(u32(i & k))) ^ Plan::post_signs(i / 32) >> i % 32 ^ Plan::pre_signs(k / 32) >> k % 32;
  return parity & 1 ? -1.f : 1.f;
}

// Every operand of the matrix at Plan::kMatrixAt; entry(n, k): of its column n for the contracted value k; pair: two entries as
// they are multiplied.
template <class Plan, class Entry, class Pair>
KV_DEVICE void fill_matrix(const Entry& entry, const Pair& pair) {
  KV_NO_UNROLL
  for (int item = thread(); item < kTileGroup * kTileGroup / 2; item += Plan::kThreads) {
    const int n = item / (kTileGroup / 2), k = item % (kTileGroup / 2) * 2;
    const float low = entry(n, k), high = entry(n, k + 1);
    const u32 both = pair(low, high);
    const SharedAddress at = Plan::kMatrixAt + operand_place(n, k);
    store_shared_u32(at, both);
    if constexpr (Plan::kMatrixParts == 2)
      store_shared_u32(at + kOperandBytes, pair(low - f32_from_f16(both & 0xffffu), high - f32_from_f16(both >> 16)));
  }
  publish_operands();
}

// y = a times the matrix, in the warpgroup's turn; meanwhile: what the warps do while the products run. Rests times rests are below what fp32 sums keep.
template <class Plan, int kParts, class First, class Meanwhile>
KV_DEVICE void matrix_products(float (&y)[64], const First& first, const Meanwhile& meanwhile) {
  take_turn();
  wgmma_begin();
  KV_UNROLL
  for (int part = 0; part < kParts; ++part) {
    KV_UNROLL
    for (int rest = 0; rest < Plan::kMatrixParts && part + rest < 2; ++rest) {
      const SharedAddress operand = Plan::kMatrixAt + rest * kOperandBytes;
      KV_UNROLL
      for (int step = 0; step < 8; ++step) {
        if (part + rest + step == 0)
          wgmma_64x128x16<false>(y, first(step, part), operand, step);
        else
          wgmma_64x128x16<true>(y, first(step, part), operand, step);
      }
    }
  }
  wgmma_commit();
  pass_turn<Plan::kWarps / 4>();
  meanwhile();
  wgmma_end(y);
}
template <class Plan, int kParts, class Meanwhile>
KV_DEVICE void matrix_products(float (&y)[64], const u32 (&a)[8][kParts][4], const Meanwhile& meanwhile) {
  matrix_products<Plan, kParts>(
      y, [&](int step, int part) -> const u32(&)[4] { return a[step][part]; }, meanwhile);
}

}  // namespace kv
