// Packing: an encoded row becomes stored bytes. Codes of up to 8 bits are gathered in shared memory, one byte each, and
// then stored as words of their fields. Elements of 16 and 32 bits, and the scale, minimum and norm of each group, are
// stored by the lanes that hold them.
// SPDX-License-Identifier: MIT
#pragma once
#include "device/simt.cuh"
#include "formats/encode.cuh"
#include "formats/fields.cuh"

namespace kv {

// Packs one field of every block, each lane a unit of bytes. A block has kCount codes; those of block b begin at
// bytes[b * kBlock].
template <class F, class Field, int kCount, int kStride>
KV_DEVICE void pack_field(const u8* bytes, u8* to) {
  constexpr int kBytes = kCount * Field::kBits / 8;
  constexpr int kMostUnit = 32 % Field::kBits != 0 && F::kRowUnit > 2 ? 2 : F::kRowUnit;
  constexpr int kUnit = unit_of<kMostUnit>(Field::kAt, kBytes, kStride);
  constexpr int kUnits = kBytes / kUnit, kAll = F::kStored / F::kBlock * kUnits;
  KV_UNROLL
  for (int first = 0; first < kAll; first += 32) {
    const int u = first + lane(), block = u / kUnits, j = u % kUnits * kUnit;
    if (u < kAll)
      store_bytes<kUnit, kUnit>(to + i64(block) * kStride + Field::kAt + j,
                                Field::template packed<kUnit>(bytes + block * F::kBlock, j));
  }
}

// Packs every field of a list.
template <class Fields>
struct PackFields;
template <class... Fields>
struct PackFields<CodeFields<Fields...>> {
  template <class F, int kCount>
  KV_DEVICE static void pack(const u8* bytes, u8* to) {
    (pack_field<F, Fields, kCount, F::kCodeStride>(bytes, to), ...);
  }
};

// Stores one number a group, from the lane that holds the group's first value.
template <class F, class Number, int kAt, int kPerLane>
KV_DEVICE void store_numbers(const StoredRow& to, const float (&numbers)[kPerLane]) {
  constexpr int kUnit = unit_of<Number::kBytes>(kAt, F::kScaleStride, Number::kBytes);
  KV_UNROLL
  for (int e = 0; e < kPerLane; ++e) {
    const int i = e * 32 + lane();
    if (i % F::kGroup == 0)
      store_bytes<Number::kBytes, kUnit>(scales_of<F>(to, i) + kAt + group_of<F>(i) * Number::kBytes,
                                         Number::encode(numbers[e]));
  }
}

// Packs a row. bytes: shared memory of this warp. It holds a byte a code, then a byte a sign if there are signs, then a
// byte a channel if blocks store their masks, each for kStored values rounded up to whole warps; and two bytes behind
// them, as packing a field may read past the last code.
template <class R, int kPerLane>
KV_DEVICE void pack(const Encoding<kPerLane>& row, u8* bytes, const StoredRow& to) {
  using F = typename R::F;
  u8* const signs = bytes + F::kStored;
  u8* const mask = signs + (F::kHasResidual || R::kStoresSigns ? F::kStored : 0);
  if constexpr (F::Codes::kBits > 8) {
    constexpr int kElement = F::Codes::kBits / 8;
    constexpr int kUnit = unit_of<(kElement < F::kRowUnit ? kElement : F::kRowUnit)>(F::Codes::kAt, F::kCodeStride, 0);
    KV_UNROLL
    for (int e = 0; e < kPerLane; ++e) {
      const int i = e * 32 + lane();
      if (F::kStored % 32 != 0 && i >= F::kStored) continue;
      store_bytes<kElement, kUnit>(codes_of<F>(to, i) + F::Codes::kAt + i % F::kBlock * kElement, row.bits[e]);
    }
  } else {
    KV_UNROLL
    for (int e = 0; e < kPerLane; ++e) {
      const int i = e * 32 + lane(), block = i / F::kBlock * F::kBlock;
      bytes[block + row.place[e].k + (row.place[e].is_outlier ? F::Codes::kCount : 0)] = u8(row.bits[e]);
      if constexpr (F::kHasResidual || R::kStoresSigns) signs[i] = row.sign[e];
      if constexpr (F::kHasStoredMask) mask[i] = row.place[e].is_outlier;
    }
    sync_warp();
    PackFields<typename F::Codes::Fields>::template pack<F, F::Codes::kCount>(bytes, to.codes);
    if constexpr (F::kHasOutliers)
      PackFields<typename F::Outliers::Fields>::template pack<F, F::Outliers::kCount>(bytes + F::Codes::kCount,
                                                                                      to.codes);
    if constexpr (F::kHasResidual) PackFields<typename F::ResidualSigns>::template pack<F, F::kBlock>(signs, to.codes);
    if constexpr (R::kStoresSigns) PackFields<typename R::Signs>::template pack<F, F::kBlock>(signs, to.codes);
    if constexpr (F::kHasStoredMask)
      pack_field<F, CodeField<F::kMaskAt, 1>, F::kBlock, F::kScaleStride>(mask, to.scales);
  }
  if constexpr (F::kHasScale) store_numbers<F, typename F::Number, F::kScaleAt>(to, row.scales.d);
  if constexpr (F::kHasMinimum) store_numbers<F, F16, F::kMinimumAt>(to, row.scales.minimum);
  if constexpr (F::kHasResidual) store_numbers<F, F16, F::kResidualNormAt>(to, row.residual_norm);
}

// Zeroes the padding of each block: kBytes from kAt on (layout rows).
template <class F, int kAt, int kBytes>
KV_DEVICE void pad(u8* to) {
  for (int i = lane(); i < F::kStored / F::kBlock * kBytes; i += 32)
    to[i64(i / kBytes) * F::kCodeStride + kAt + i % kBytes] = 0;
}

}  // namespace kv
