// Tiles of the write path: 16 groups of 128 values a warp, transformed on the tensor cores.
//
// Lane 4 g + c holds the values 32 c .. 32 c + 31 of groups g and g + 8. A value's number has seven bits:  c c j j j h i.
//   H16 over the bits c c h i   one m16n8k16 product of halves for each j and each h of the result; +-1 and f16 values are exact,
//                               sums are fp32. The signs before the transform are folded into the +-1.
//   H8 over the bits j j j      butterflies in registers
// SPDX-License-Identifier: MIT
#pragma once
#include "core/args.cuh"
#include "core/simt.cuh"

namespace kv {

constexpr int kTileRows = 16, kTileGroup = 128;

// The +-1 of H16 for the lane, as halves, with the signs before the transform (32 bits a lane): b[j][0] for h = 0 of the contracted value,
// b[j][1] for h = 1; the result's h = 1 takes the second negated.
KV_DEVICE void hadamard_fragments(u32 (&b)[8][2], u32 signs) {
  const int c = lane() & 3, n = lane() >> 2;
  const u32 parity = u32((c & n >> 1 & 1) ^ (c >> 1 & n >> 2));
  const u32 base = 0x3c003c00u ^ parity * 0x80008000u ^ u32(n & 1) << 31;
  KV_UNROLL
  for (int i = 0; i < 16; ++i) b[i / 2][i % 2] = base ^ (signs >> 2 * i & 1) << 15 ^ (signs >> (2 * i + 1) & 1) << 31;
}

// y += the H16 part for two groups a lane; y[j][h]: values i = 0, 1 of group g, then of group g + 8.
KV_DEVICE void add_products(float (&y)[8][2][4], const u32 (&x)[2][16], const u32 (&b)[8][2]) {
  KV_UNROLL
  for (int j = 0; j < 8; ++j) {
    mma_16x8x16(y[j][0], x[0][2 * j], x[1][2 * j], x[0][2 * j + 1], x[1][2 * j + 1], b[j][0], b[j][1]);
    mma_16x8x16(y[j][1], x[0][2 * j], x[1][2 * j], x[0][2 * j + 1], x[1][2 * j + 1], b[j][0], b[j][1] ^ 0x80008000u);
  }
}
// The H8 part. Both together make sqrt(128) times the orthonormal transform.
KV_DEVICE void butterflies(float (&y)[8][2][4]) {
  KV_UNROLL
  for (int stride = 1; stride < 8; stride <<= 1) {
    KV_UNROLL
    for (int i = 0; i < 64; ++i) {
      const int j = i / 8, at = i % 8;
      if ((j & stride) == 0) {
        const float p = y[j][at / 4][at % 4], q = y[j + stride][at / 4][at % 4];
        y[j][at / 4][at % 4] = p + q;
        y[j + stride][at / 4][at % 4] = p - q;
      }
    }
  }
}

// The rows of a call, tokens fastest: what a block and a warp take, and where a row begins.
struct TileRow {
  u32 token, head, sequence;
};
KV_DEVICE TileRow tile_row(const CodecArgs& args, u32 row) {
  const u32 tokens = args.tokens, heads = args.heads, of_head = row / tokens;
  return {row - of_head * tokens, of_head % heads, of_head / heads};
}
KV_DEVICE i64 row_in_x(const CodecArgs& args, const TileRow& row) {
  return row.sequence * args.x.sequence_stride + row.token * args.x.query_stride + row.head * args.x.head_stride;
}

// A staged group of halves: four segments of 32 values, 80 bytes apart, so that neither the lanes that bring rows nor those that
// take segments meet in a bank.
constexpr int kSegmentPitch = 80, kStagePitch = 4 * kSegmentPitch, kTileStage = kTileRows * kStagePitch;
KV_DEVICE SharedAddress staged_chunk(SharedAddress stage, int row, int chunk) {
  return stage + row * kStagePitch + chunk / 4 * kSegmentPitch + chunk % 4 * 16;
}

}  // namespace kv
