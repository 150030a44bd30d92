// quantize_bulk_blocks: quantizes whole blocks in one lane, for formats without a rotation or with one inside a block.
// A lane takes kValues neighbouring values of a row, so nothing crosses lanes. Values are encoded by
// formats/encode.cuh, as in every quantize kernel of one row a warp. kernels/codec/quantize.cuh serves everything.
// SPDX-License-Identifier: MIT
#pragma once
#include "args/attention.cuh"
#include "kernels/codec/lane_rows.cuh"
#include "formats/number_rows.cuh"
#include "device/simt.cuh"
#include "formats/encode.cuh"
#include "formats/pack.cuh"

namespace kv {

// Packs one field of a block from codes of one byte each, and stores it.
template <class F, class Field, int kStride>
KV_DEVICE void store_field(const u8* codes, u8* to) {
  constexpr int kBytes = F::Codes::kCount * Field::kBits / 8,
                kPackBytes = 32 % Field::kBits == 0 && kBytes % 4 == 0 ? 4 : 2;
  static_assert(kBytes % kPackBytes == 0, "a field of odd size");
  u32 words[(kBytes + 3) / 4] = {};
  KV_UNROLL
  for (int j = 0; j < kBytes; j += kPackBytes)
    words[j / 4] |= Field::template packed<kPackBytes>(codes, j) << j % 4 * 8;
  store_words<kBytes, unit_of_words(Field::kAt, kBytes, kStride)>(to + Field::kAt, words);
}
template <class Fields>
struct StoreFields;
template <class... Fields>
struct StoreFields<CodeFields<Fields...>> {
  template <class F, int kStride>
  KV_DEVICE static void store(const u8* codes, u8* to) {
    (store_field<F, Fields, kStride>(codes, to), ...);
  }
};

// Stores the codes of the lane's blocks.
template <class F, int kValues>
KV_DEVICE void store_lane_codes(u8* to, const u32 (&bits)[kValues]) {
  if constexpr (F::Codes::kBits % 8 == 0) {  // whole bytes, one code after the other
    constexpr int kBytes = kValues * F::Codes::kBits / 8;
    static_assert(F::kBlock * F::Codes::kBits / 8 == F::kCodeStride, "codes with something between them");
    u32 words[kBytes / 4] = {};
    KV_UNROLL
    for (int i = 0; i < kValues; ++i) words[i * F::Codes::kBits / 32] |= bits[i] << i * F::Codes::kBits % 32;
    store_words<kBytes, unit_of_words(0, kBytes, 0)>(to, words);
  } else {
    KV_UNROLL
    for (int block = 0; block < kValues / F::kBlock; ++block) {
      u8 codes[F::kBlock + 2] = {};  // Field::packed may read two codes more
      KV_UNROLL
      for (int i = 0; i < F::kBlock; ++i) codes[i] = u8(bits[block * F::kBlock + i]);
      StoreFields<typename F::Codes::Fields>::template store<F, F::kCodeStride>(codes, to + block * F::kCodeStride);
    }
  }
}

// Stores the signs of the lane's blocks: one bit a value, the sign of what its code missed.
template <class R, int kValues>
KV_DEVICE void store_lane_signs(u8* to, const bool (&sign)[kValues]) {
  using F = typename R::F;
  KV_UNROLL
  for (int block = 0; block < kValues / F::kBlock; ++block) {
    u8 codes[F::kBlock] = {};
    KV_UNROLL
    for (int i = 0; i < F::kBlock; ++i) codes[i] = sign[block * F::kBlock + i];
    StoreFields<typename R::Signs>::template store<F, F::kCodeStride>(codes, to + block * F::kCodeStride);
  }
}

// Stores one number of each scale group of the lane's blocks: the scale or the minimum, kAt bytes into a block.
template <class F, class Number, int kAt, int kValues>
KV_DEVICE void store_lane_numbers(u8* scales, const float (&numbers)[kValues]) {
  KV_UNROLL
  for (int i = 0; i < kValues; i += F::kGroup)
    store_bytes<Number::kBytes, unit_of<Number::kBytes>(kAt, F::kScaleStride, Number::kBytes)>(
        scales + i / F::kBlock * F::kScaleStride + kAt + i % F::kBlock / F::kGroup * Number::kBytes,
        Number::encode(numbers[i]));
}

// Encodes and stores the lane's blocks: the row's values from row_lane * kValues on. x is rotated. R is an encoder
// whose groups are held by one lane (InLane of formats/groups.cuh).
template <class R, int kValues>
KV_DEVICE void store_lane_blocks(const float (&x)[kValues], float tensor_scale, const StoredRow& to, int row_lane) {
  using F = typename R::F;
  constexpr int kBlocks = kValues / F::kBlock;
  Encoding<kValues> encoding;
  encode<R>(x, x, tensor_scale, encoding);
  u8* const codes = to.codes + row_lane * kBlocks * F::kCodeStride;
  u8* const scales = to.scales + row_lane * kBlocks * F::kScaleStride;
  store_lane_codes<F>(codes, encoding.bits);
  if constexpr (R::kStoresSigns) store_lane_signs<R>(codes, encoding.sign);
  if constexpr (F::kHasScale) store_lane_numbers<F, typename F::Number, F::kScaleAt>(scales, encoding.scales.d);
  if constexpr (F::kHasMinimum) store_lane_numbers<F, F16, F::kMinimumAt>(scales, encoding.scales.minimum);
}

template <class Plan>
KV_DEVICE void quantize_bulk_blocks(const CodecArgs& args) {
  using R = typename Plan::Encoder;
  constexpr int kValues = Plan::kValues, kLanes = Plan::kHeadDim / kValues;
  const i64 item = i64(block_x()) * Plan::kThreads + thread();
  const u32 row = u32(item / kLanes);
  const int row_lane = int(item % kLanes);
  if (row >= u32(args.sequences) * args.heads * args.tokens) return;
  const CodecRow at = codec_row(args, row);
  const i64 slot = args.slots ? args.slots[i64(at.sequence) * args.tokens + at.token] : args.first_token + at.token;
  if (slot < 0) return;
  float x[kValues];
  load_lane<typename Plan::Words>(args.x.data, at.in_x + row_lane * kValues, x);
  R::Rotation::forward_in_lane(x);
  store_lane_blocks<R>(x, args.tensor_scale, stored_row<typename R::F>(args.side, at.sequence, at.head, slot),
                       row_lane);
}

}  // namespace kv
