// quantize_bulk_dense: quantizes two bulk tiles a warp (kernels/codec/bulk_tile.cuh) behind a dense rotation of 128
// values. The tensor cores multiply each of the 32 groups with the matrix. It serves f16 rows on GPUs without wgmma.
//
// An entry of the matrix is two fp16 terms, a high term and its rest, exact to 2^-22. f16 values are exact, and sums
// are fp32. The matrix stays in shared memory as fragments: 16 bytes a lane and product are the high terms of the
// second operand's two registers, then the rests.
// SPDX-License-Identifier: MIT
#pragma once
#include "args/attention.cuh"
#include "kernels/codec/bulk_encode.cuh"
#include "device/simt.cuh"
#include "kernels/codec/bulk_tile.cuh"

namespace kv {

// Fills the matrix. Fragment (e, t, s) gives the results 8 e + 2 t + i (i = 0, 1) of each segment of 32 values, from
// the values 4 s .. 4 s + 3 of each segment.
template <class Plan>
KV_DEVICE void fill_matrix() {
  KV_NO_UNROLL
  for (int item = thread(); item < 4 * 4 * 8 * 32; item += Plan::kThreads) {
    const int c = item & 3, n = item >> 2 & 7, s = item >> 5 & 7, t = item >> 8 & 3, e = item >> 10;
    const int row = n / 2 * 32 + 8 * e + 2 * t + n % 2, column = c * 32 + 4 * s;
    float value[4], rest[4];
    KV_UNROLL
    for (int i = 0; i < 4; ++i) {
      value[i] = Plan::matrix(row, column + i);
      rest[i] = value[i] - f32_from_f16(f16_from_f32(value[i]));
    }
    store_shared_u128(Plan::kMatrixAt + item * 16, pack_f16x2(value[0], value[1]), pack_f16x2(value[2], value[3]),
                      pack_f16x2(rest[0], rest[1]), pack_f16x2(rest[2], rest[3]));
  }
}

template <class Plan>
KV_DEVICE void quantize_bulk_dense(const CodecArgs& args) {
  constexpr int kGroups = Plan::kHeadDim / kBulkGroup, kTiles = 2;
  constexpr float kRoot = 11.3137085f;  // sqrt(128): from coordinates of a unit vector to standard deviations
  fill_encoding_tables<Plan>();
  fill_matrix<Plan>();
  sync_block();

  const int g = lane() >> 2, c = lane() & 3;
  const u32 mine = lane() * 4;
  // `zero` is always 0, but the compiler does not know it. A value that is combined with it gets a register of its own,
  // once, in the order of a fragment. The four words of a load would else be moved into place for each of 128 products.
  const u32 zero = u32(args.sequences) >> 31;
  BulkTileLoop<Plan, kTiles> loop = BulkTileLoop<Plan, kTiles>::of(args);
  KV_NO_UNROLL
  for (; loop.has_tile(); loop.advance(args)) {
    const Tile tiles[kTiles] = {loop.tile, loop.tile.further(args, 1, 0, 1)};
    KV_NO_UNROLL
    for (int group = 0; group < kGroups; ++group) {
      u32 x[kTiles][8][4], nibbles[kTiles][2][4];
      float factor[kTiles][2], norm[kTiles][2];
      bool is_direction[kTiles][2];
      KV_UNROLL
      for (int i = 0; i < kTiles * 2; ++i) {
        const i64 from = row_in_x(args, tiles[i / 2].row(args, g + 8 * (i % 2))) + group * kBulkGroup + c * 32;
        // A fragment x[tile][s] has the values 4 s .. 4 s + 3 of the lane's segment, of rows g and g + 8.
        KV_UNROLL
        for (int w = 0; w < 16; w += 4) {
          u32 v[4];
          load_u128(v, static_cast<const u16*>(args.x.data) + from + 2 * w);
          KV_UNROLL
          for (int m = 0; m < 4; ++m) x[i / 2][(w + m) / 2][(w + m) % 2 * 2 + i % 2] = v[m] ^ zero;
        }
      }
      KV_UNROLL
      for (int i = 0; i < kTiles * 2; ++i) {
        float square = 0.f;
        KV_UNROLL
        for (int w = 0; w < 16; ++w) {
          const u32 pair = x[i / 2][w / 2][w % 2 * 2 + i % 2];
          const float low = f32_from_f16(pair & 0xffffu), high = f32_from_f16(pair >> 16);
          square = fma_rn(low, low, fma_rn(high, high, square));
        }
        square += shfl_xor(square, 1);
        square += shfl_xor(square, 2);
        const float inverse = rsqrt_fast(square);
        norm[i / 2][i % 2] = square * inverse;
        is_direction[i / 2][i % 2] = has_direction(square);
        factor[i / 2][i % 2] = is_direction[i / 2][i % 2] ? Plan::kStep * kRoot * inverse : 0.f;
      }
      KV_UNROLL_BY(1)
      for (int e = 0; e < 4; ++e) {
        float y[kTiles][4][4];
        KV_UNROLL
        for (int step = 0; step < 16; ++step) {  // two fragments of the matrix at a time
          const int s = step / 2, t = step % 2 * 2;
          u32 b[2][4];
          KV_UNROLL
          for (int i = 0; i < 2; ++i)
            load_shared_u128(b[i], Plan::kMatrixAt + (((e * 4 + t + i) * 8 + s) * 32 + lane()) * 16);
          KV_UNROLL  // first all high terms, then all rests: no product waits for the one before it
          for (int i = 0; i < kTiles * 4; ++i) {
            const int tile = i % kTiles, n = i / kTiles % 2, rest = i / (kTiles * 2);
            const u32(&v)[4] = x[tile][s];
            if (s == 0 && rest == 0)
              mma_16x8x16_first(y[tile][t + n], v[0], v[1], v[2], v[3], b[n][0], b[n][1]);
            else
              mma_16x8x16(y[tile][t + n], v[0], v[1], v[2], v[3], b[n][2 * rest], b[n][2 * rest + 1]);
          }
        }
        KV_UNROLL
        for (int i = 0; i < kTiles * 2; ++i) {
          float eight[8];
          KV_UNROLL
          for (int m = 0; m < 8; ++m) eight[m] = y[i / 2][m / 2][i % 2 * 2 + m % 2];
          const u32 codes = encode_eight(eight, factor[i / 2][i % 2], mine);
          KV_UNROLL
          for (int k = 0; k < 4; ++k)
            if (k == e) nibbles[i / 2][i % 2][k] = codes;
        }
      }
      KV_UNROLL
      for (int tile = 0; tile < kTiles; ++tile) {
        EncodedRow rows[2];
        KV_UNROLL
        for (int half = 0; half < 2; ++half) {
          KV_UNROLL
          for (int e = 0; e < 4; ++e) rows[half].nibbles[e] = nibbles[tile][half][e];
          rows[half].norm = norm[tile][half], rows[half].is_direction = is_direction[tile][half];
          rows[half].length = squared_length<Plan>(nibbles[tile][half], mine);
          clear_if_zero<Plan>(rows[half]);
        }
        store_rows<Plan>(args, tiles[tile], group, rows);
      }
    }
  }
}

}  // namespace kv
