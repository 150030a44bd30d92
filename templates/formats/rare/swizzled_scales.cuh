// Pages whose scales of one byte are swizzled 4 x 4, as vLLM's SM100 kernels lay out V's: four tokens of a head have a
// piece of 4 n bytes, n scales each. The scale of group s of the piece's token t is byte 4 * (s % (n / 4)) + t of row
// s / (n / 4), and rows have n bytes. Tokens of a head are dense in a page. StoredRow::scales points t bytes behind the
// start of the piece.
// SPDX-License-Identifier: MIT
#pragma once
#include "formats/pack.cuh"
#include "formats/stored_pages.cuh"

namespace kv {

template <class F>
concept Swizzled = F::kSwizzlesScales;
template <class F>
struct InTokenOrder : F {
  static constexpr bool kSwizzlesScales = false;
};

// Where the scale of a group stands, behind that of group 0. kScales: scales of a token.
template <int kScales>
KV_DEVICE constexpr int swizzled_place(int group) {
  return group / (kScales / 4) * kScales + group % (kScales / 4) * 4;
}
template <Swizzled F>
KV_DEVICE u8* swizzled_scale(const StoredRow& row, int i) {
  return row.scales + swizzled_place<F::kBlock / F::kGroup>(group_of<F>(i));
}

// Forms with slots or lengths (formats/stored_slots.cuh) find the row, and ask for it by F::Rows.
template <class F>
requires Paged<F> && Swizzled<F> &&(!requires { typename F::Rows; })KV_DEVICE StoredRow
    stored_row(const CacheSide& side, i64 sequence, i64 head, i64 token) {
  const StoredRow own = stored_row<InTokenOrder<F>>(side, sequence, head, token);
  return {own.codes, own.scales - (token & 3) * side.scales_token_stride + (token & 3)};
}
// In place of load_value() of formats/stored_row.cuh and of store_numbers() of formats/pack.cuh.
template <Swizzled F>
KV_DEVICE float load_value(const StoredRow& row, int i, float = 1.f) {
  return load_level<F>(row, i) * F::Number::decode(*swizzled_scale<F>(row, i));
}
template <Swizzled F, class Number, int, int kPerLane>
KV_DEVICE void store_numbers(const StoredRow& to, const float (&numbers)[kPerLane]) {
  KV_UNROLL
  for (int e = 0; e < kPerLane; ++e) {
    const int i = e * 32 + lane();
    if (i % F::kGroup == 0) *swizzled_scale<F>(to, i) = u8(Number::encode(numbers[e]));
  }
}

}  // namespace kv
