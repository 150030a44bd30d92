// The rotation of a tile as a product with its 128 x 128 matrix, by warpgroups: dense matrices, and Walsh-Hadamard
// transforms with their signs, as one. Entries that one half cannot hold stand in two, exact to 2^-22: an operand of
// high halves, and behind it one of rests; or their rests are bytes (E4M3), exact to 2^-15, which are multiplied in
// half the time.
//
//   Plan::kRestBits   16, 8, or 0: there are none
// SPDX-License-Identifier: MIT
#pragma once
#include "device/simt.cuh"
#include "kernels/codec/bulk_tile.cuh"
#include "device/wgmma.cuh"

namespace kv {

// The signed transform's entry in row i, column k, times sqrt(128).
template <class Plan>
KV_DEVICE float wht_entry(int i, int k) {
  const u32 parity =
      u32(count_bits(u32(i & k))) ^ Plan::post_signs(i / 32) >> i % 32 ^ Plan::pre_signs(k / 32) >> k % 32;
  return parity & 1 ? -1.f : 1.f;
}

// Where the contracted value k, if even, and the next stand among bytes, so that fragments of bytes are those of
// halves, converted.
KV_DEVICE int byte_of(int k) { return k / 32 * 32 + k / 16 % 2 * 16 + k % 8 / 2 * 4 + k / 8 % 2 * 2; }
KV_DEVICE void byte_fragments(u32 (&bytes)[4][4], const u32 (&a)[8][1][4]) {
  KV_UNROLL
  for (int i = 0; i < 16; ++i) {
    const u32(&halves)[4] = a[i / 4 * 2 + i % 4 / 2][0];
    bytes[i / 4][i % 4] = e4m3x4_from_f16x4(halves[i % 2], halves[i % 2 + 2]);
  }
}

// Every operand of the matrix at Plan::kMatrixAt; entry(n, k): of its column n for the contracted value k; pair: two
// entries as they are multiplied.
template <class Plan, class Entry, class Pair>
KV_DEVICE void fill_matrix(const Entry& entry, const Pair& pair) {
  KV_NO_UNROLL
  for (int item = thread(); item < kTileGroup * kTileGroup / 2; item += Plan::kThreads) {
    const int n = item / (kTileGroup / 2), k = item % (kTileGroup / 2) * 2;
    const float low = entry(n, k), high = entry(n, k + 1);
    const u32 both = pair(low, high);
    const SharedAddress at = Plan::kMatrixAt + operand_place(n, k);
    store_shared_u32(at, both);
    if constexpr (Plan::kRestBits > 0) {
      const u32 rests = pair(low - f32_from_f16(both & 0xffffu), high - f32_from_f16(both >> 16));
      if constexpr (Plan::kRestBits == 8)
        store_shared_u16(Plan::kMatrixAt + kOperandBytes + byte_operand_place(n, byte_of(k)),
                         e4m3x4_from_f16x4(rests, 0));
      else
        store_shared_u32(at + kOperandBytes, rests);
    }
  }
  publish_operands();
}

// y = a times the matrix, in the warpgroup's turn; rests(): issues products with rests that are bytes, which come
// first, as sums of such products are kept to 14 bits; meanwhile: what the warps do while the products run. Rests times
// rests are below what fp32 sums keep.
template <class Plan, int kParts, class First, class Rests, class Meanwhile>
KV_DEVICE void matrix_products(float (&y)[64], const First& first, const Rests& rests, const Meanwhile& meanwhile) {
  constexpr int kMatrixParts = Plan::kRestBits == 16 ? 2 : 1;
  take_turn();
  wgmma_begin();
  rests();
  KV_UNROLL
  for (int part = 0; part < kParts; ++part) {
    KV_UNROLL
    for (int rest = 0; rest < kMatrixParts && part + rest < 2; ++rest) {
      const SharedAddress operand = Plan::kMatrixAt + rest * kOperandBytes;
      KV_UNROLL
      for (int step = 0; step < 8; ++step) {
        if (part + rest + step == 0 && Plan::kRestBits != 8)
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
  const auto first = [&](int step, int part) -> const u32(&)[4] { return a[step][part]; };
  if constexpr (Plan::kRestBits == 8) {
    u32 bytes[4][4];
    byte_fragments(bytes, a);
    const auto rests = [&] {
      constexpr SharedAddress kRests = Plan::kMatrixAt + kOperandBytes;
      wgmma_64x128x32_e4m3<false>(y, bytes[0], kRests, 0);
      KV_UNROLL
      for (int step = 1; step < 4; ++step) wgmma_64x128x32_e4m3<true>(y, bytes[step], kRests, step);
      wgmma_begin();  // products of another shape follow
    };
    matrix_products<Plan, kParts>(y, first, rests, meanwhile);
  } else {
    matrix_products<Plan, kParts>(
        y, first, [] {}, meanwhile);
  }
}

}  // namespace kv
