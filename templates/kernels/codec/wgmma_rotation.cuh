// Rotates bulk tiles by wgmma: a warpgroup multiplies its 64 groups with the 128 x 128 matrix of the rotation. Dense
// and block rotations are such matrices, and so is a Walsh-Hadamard transform with its signs.
//
// The matrix is the second operand, in shared memory from Plan::kMatrixAt on. If its entries need more than one fp16
// number, a second operand behind the first has their rests. Plan::kRestBits says how:
//   16   rests are fp16; entries are exact to 2^-22
//   8    rests are bytes (E4M3), which are multiplied in half the time; entries are exact to 2^-15
//   0    there are no rests
// SPDX-License-Identifier: MIT
#pragma once
#include "device/simt.cuh"
#include "kernels/codec/bulk_tile.cuh"
#include "device/wgmma.cuh"

namespace kv {

// sqrt(128) times the entry of the signed Walsh-Hadamard transform in row i, column k.
template <class Plan>
KV_DEVICE float wht_entry(int i, int k) {
  const u32 parity =
      u32(count_bits(u32(i & k))) ^ Plan::post_signs(i / 32) >> i % 32 ^ Plan::pre_signs(k / 32) >> k % 32;
  return parity & 1 ? -1.f : 1.f;
}

// The place of the contracted values k (even) and k + 1 in an operand of bytes. With it, byte_fragments makes fragments
// of bytes from those of fp16 by conversion alone.
KV_DEVICE int byte_of(int k) { return k / 32 * 32 + k / 16 % 2 * 16 + k % 8 / 2 * 4 + k / 8 % 2 * 2; }
KV_DEVICE void byte_fragments(u32 (&bytes)[4][4], const u32 (&a)[8][1][4]) {
  KV_UNROLL
  for (int i = 0; i < 16; ++i) {
    const u32(&halves)[4] = a[i / 4 * 2 + i % 4 / 2][0];
    bytes[i / 4][i % 4] = e4m3x4_from_f16x4(halves[i % 2], halves[i % 2 + 2]);
  }
}

// Writes the matrix, and the operand of rests behind it. entry(n, k): the entry of column n for the contracted value k.
// pair(low, high): two entries in the type that is multiplied.
template <class Plan, class Entry, class Pair>
KV_DEVICE void fill_matrix(const Entry& entry, const Pair& pair) {
  KV_NO_UNROLL
  for (int item = thread(); item < kBulkGroup * kBulkGroup / 2; item += Plan::kThreads) {
    const int n = item / (kBulkGroup / 2), k = item % (kBulkGroup / 2) * 2;
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

// y = a times the matrix. Warpgroups use the tensor cores one after the other (device/wgmma.cuh). first(step, part) is
// the first operand: fragment `step` of its fp16 term `term`. rests() issues the products with rests that are bytes.
// They come first, because sums of such products have 14 bits only. meanwhile() runs while the products do. Products of
// rests with rests are left out: they are below the last bit of fp32 sums.
template <class Plan, int kTerms, class First, class Rests, class Meanwhile>
KV_DEVICE void matrix_products(float (&y)[64], const First& first, const Rests& rests, const Meanwhile& meanwhile) {
  constexpr int kMatrixTerms = Plan::kRestBits == 16 ? 2 : 1;
  await_warpgroup_order();
  wgmma_begin();
  rests();
  KV_UNROLL
  for (int term = 0; term < kTerms; ++term) {
    KV_UNROLL
    for (int rest = 0; rest < kMatrixTerms && term + rest < 2; ++rest) {
      const SharedAddress operand = Plan::kMatrixAt + rest * kOperandBytes;
      KV_UNROLL
      for (int step = 0; step < 8; ++step) {
        if (term + rest + step == 0 && Plan::kRestBits != 8)
          wgmma_64x128x16<false>(y, first(step, term), operand, step);
        else
          wgmma_64x128x16<true>(y, first(step, term), operand, step);
      }
    }
  }
  wgmma_commit();
  pass_warpgroup_order<Plan::kWarps / 4>();
  meanwhile();
  wgmma_end(y);
}
template <class Plan, int kTerms, class Meanwhile>
KV_DEVICE void matrix_products(float (&y)[64], const u32 (&a)[8][kTerms][4], const Meanwhile& meanwhile) {
  const auto first = [&](int step, int term) -> const u32(&)[4] { return a[step][term]; };
  if constexpr (Plan::kRestBits == 8) {
    u32 bytes[4][4];
    byte_fragments(bytes, a);
    const auto rests = [&] {
      constexpr SharedAddress kRests = Plan::kMatrixAt + kOperandBytes;
      wgmma_64x128x32_e4m3<false>(y, bytes[0], kRests, 0);
      KV_UNROLL
      for (int step = 1; step < 4; ++step) wgmma_64x128x32_e4m3<true>(y, bytes[step], kRests, step);
      wgmma_begin();  // needed again, as products of another shape follow
    };
    matrix_products<Plan, kTerms>(y, first, rests, meanwhile);
  } else {
    matrix_products<Plan, kTerms>(
        y, first, [] {}, meanwhile);
  }
}

}  // namespace kv
