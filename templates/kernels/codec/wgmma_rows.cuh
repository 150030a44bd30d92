// Inputs of quantize_bulk_wgmma: how staged rows of each type become the first operand of wgmma, and how the Euclidean
// lengths of rows are computed.
//
// f16 rows are multiplied where they are staged. So are bf16 rows where the matrix is exact in bf16, as that of a
// Walsh-Hadamard transform is. Other rows are loaded as fragments. A power of two near the reciprocal of a row's length
// brings them into the range of fp16 first. A bf16 value is then one fp16 number, and what that cannot hold is 2^-39 of
// the row's length. An f32 value is two fp16 numbers, exact to 2^-22 of the value.
//
// An input is a struct with these members:
//   kBytes              bytes of a value
//   kTerms              fp16 (or bf16) terms of a value
//   kIsOperand          The staged rows are the operand: a warpgroup stages its 64 rows together. Else each warp stages
//                       its 16 rows for itself.
//   kKnowsLengths       load computes the lengths. Else they are those of the products, as an orthogonal matrix
//                       preserves lengths.
//   place(row, chunk)   address in the stage of 16 bytes. Neither copying rows nor taking fragments has bank conflicts.
//   source(k)           number of the value of a group that is contracted as the k-th
//   pair(low, high)     two entries of the matrix in the type that is multiplied
//   rows(stage)         kIsOperand: the staged rows as the first operand
//   load(...)           otherwise: fragments a; and for rows g and g + 8 the squared length, and the unit by which
//                       products must be multiplied
// SPDX-License-Identifier: MIT
#pragma once
#include "device/simt.cuh"
#include "kernels/codec/bulk_tile.cuh"
#include "device/wgmma.cuh"

namespace kv {

// half_row_place: the place of a chunk of staged 2-byte values. load_half_rows: loads such rows as fragments.
KV_DEVICE SharedAddress half_row_place(int row, int chunk) { return row * 256 + (chunk ^ (row & 7)) * 16; }
KV_DEVICE void load_half_rows(u32 (&a)[8][1][4], SharedAddress stage) {
  const int row = lane() % 16, high = lane() / 16;
  KV_UNROLL
  for (int s = 0; s < 8; ++s) load_matrices(a[s][0], stage + half_row_place(row, 2 * s + high));
}

struct OperandInput {
  static constexpr int kBytes = 2, kTerms = 1;
  static constexpr bool kIsOperand = true, kKnowsLengths = false;
  KV_DEVICE static SharedAddress place(int row, int chunk) { return row_operand_place(row, chunk); }
  KV_DEVICE static int source(int k) { return k; }
};
struct HalfInput : OperandInput {
  KV_DEVICE static u32 pair(float low, float high) { return pack_f16x2(low, high); }
  KV_DEVICE static SharedAddress rows(SharedAddress stage) { return stage; }
};
struct BfloatInput : OperandInput {
  KV_DEVICE static u32 pair(float low, float high) { return pack_bf16x2(low, high); }
  KV_DEVICE static BfloatRows rows(SharedAddress stage) { return {stage}; }
};

struct ScaledBfloatInput {
  static constexpr int kBytes = 2, kTerms = 1;
  static constexpr bool kIsOperand = false, kKnowsLengths = true;
  KV_DEVICE static SharedAddress place(int row, int chunk) { return half_row_place(row, chunk); }
  KV_DEVICE static int source(int k) { return k; }
  KV_DEVICE static u32 pair(float low, float high) { return pack_f16x2(low, high); }
  KV_DEVICE static void load(u32 (&a)[8][1][4], float (&square)[2], float (&unit)[2], SharedAddress stage) {
    load_half_rows(a, stage);
    const auto low = [&](int s, int r) { return float_of(a[s][0][r] << 16); };
    const auto high = [&](int s, int r) { return float_of(a[s][0][r] & 0xffff0000u); };
    square[0] = square[1] = 0.f;
    KV_UNROLL
    for (int i = 0; i < 32; ++i) {
      const int s = i / 4, r = i % 4;
      square[r % 2] = fma_rn(low(s, r), low(s, r), fma_rn(high(s, r), high(s, r), square[r % 2]));
    }
    sum_over_row(square);
    float power[2];
    KV_UNROLL
    for (int h = 0; h < 2; ++h) {
      power[h] = has_direction(square[h]) ? power_below(rsqrt_fast(square[h])) * kRange : 0.f;
      unit[h] = reciprocal_power(power[h]);
    }
    KV_UNROLL
    for (int i = 0; i < 32; ++i) {
      const int s = i / 4, r = i % 4;
      a[s][0][r] = pack_f16x2(low(s, r) * power[r % 2], high(s, r) * power[r % 2]);
    }
  }

 private:
  static constexpr float kRange = 0x1p15f;  // A row of length 2^15 fits fp16, whose least number is 2^-39 of that.
};

struct FloatInput {
  static constexpr int kBytes = 4, kTerms = 2;
  static constexpr bool kIsOperand = false, kKnowsLengths = true;
  KV_DEVICE static SharedAddress place(int row, int chunk) { return row * 512 + (chunk ^ (row & 1) * 4) * 16; }
  // Lane c of a row takes four neighbouring values a step, two for each half of the fragment.
  KV_DEVICE static int source(int k) { return k / 16 * 16 + k % 8 / 2 * 4 + k / 8 % 2 * 2 + k % 2; }
  KV_DEVICE static u32 pair(float low, float high) { return pack_f16x2(low, high); }
  KV_DEVICE static void load(u32 (&a)[8][2][4], float (&square)[2], float (&unit)[2], SharedAddress stage) {
    const int g = lane() >> 2, c = lane() & 3;
    u32 x[2][8][4];  // [row g or g + 8][step][value]
    KV_UNROLL
    for (int h = 0; h < 2; ++h) {
      square[h] = 0.f;
      KV_UNROLL
      for (int s = 0; s < 8; ++s) {
        load_shared_u128(x[h][s], stage + place(g + 8 * h, 4 * s + c));
        KV_UNROLL
        for (int i = 0; i < 4; ++i) square[h] = fma_rn(float_of(x[h][s][i]), float_of(x[h][s][i]), square[h]);
      }
    }
    sum_over_row(square);
    KV_UNROLL
    for (int h = 0; h < 2; ++h) {
      const float power = has_direction(square[h]) ? power_below(rsqrt_fast(square[h])) * kRange : 0.f;
      unit[h] = reciprocal_power(power);
      KV_UNROLL
      for (int i = 0; i < 16; ++i) {
        const int s = i / 2, pair = i % 2;
        const float first = float_of(x[h][s][2 * pair]) * power, second = float_of(x[h][s][2 * pair + 1]) * power;
        const u32 halves = pack_f16x2(first, second);
        a[s][0][2 * pair + h] = halves;
        a[s][1][2 * pair + h] = pack_f16x2(first - f32_from_f16(halves & 0xffffu), second - f32_from_f16(halves >> 16));
      }
    }
  }

 private:
  static constexpr float kRange = 0x1p10f;  // The rests of the largest values are then normal fp16 numbers.
};

// Copies group number `group` of each of the tile's rows to the stage, 16 bytes a lane and step.
template <class Input>
KV_DEVICE void stage_input(SharedAddress to, const CodecArgs& args, const Tile& tile, int group) {
  constexpr int kChunks = kBulkGroup * Input::kBytes / 16, kRows = 32 / kChunks;  // of a row; rows a step
  const int first = lane() / kChunks, chunk = lane() % kChunks;
  const int top = Input::kIsOperand ? warp() % 4 * kBulkRows : 0;
  const u8* const x = static_cast<const u8*>(args.x.data) + group * (kBulkGroup * Input::kBytes) + chunk * 16;
  if (tile.is_together) {
    const u8* from = x + (row_in_x(args, tile.start) + first * args.x.query_stride) * Input::kBytes;
    KV_UNROLL
    for (int i = 0; i < kBulkRows / kRows; ++i) {
      copy_async<16>(to + Input::place(top + i * kRows + first, chunk), from, 16);
      from += args.x.query_stride * (kRows * Input::kBytes);
    }
  } else {
    KV_NO_UNROLL
    for (int row = first; row < kBulkRows; row += kRows)
      copy_async<16>(to + Input::place(top + row, chunk), x + row_in_x(args, tile.row(args, row)) * Input::kBytes, 16);
  }
}

}  // namespace kv
