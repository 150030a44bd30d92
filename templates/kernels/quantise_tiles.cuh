// quantise, many rows at once: 16 groups of 128 values a warp, rotated by the tensor cores. Serves what long prompts are written
// in (f16 rows, a signed Walsh-Hadamard rotation of 128, a norm over the same 128 values, symmetric codebooks of up to 4 bits);
// kernels/quantise.cuh serves everything.
//
// Lane 4 g + c holds the values 32 c .. 32 c + 31 of groups g and g + 8. A value's number has seven bits:  c c j j j h i.
//   H16 over the bits c c h i   one m16n8k16 product of halves for each j and each h of the result; +-1 and f16 values are exact,
//                               sums are fp32. The signs before the transform are folded into the +-1.
//   H8 over the bits j j j      butterflies in registers
// The signs after it would only mirror codes of a symmetric codebook, so they are applied to the packed codes.
//
// A code is found without a search: the value becomes an integer in steps of 2^-18 standard deviations by one fused multiply-add;
// its upper bits name a bucket of a quarter, which holds at most one bound, and adding the bucket's word carries into the code
// exactly if the value is not below that bound. Tables are copied for each lane, so look-ups never meet in a bank.
// SPDX-License-Identifier: MIT
#pragma once
#include "core/args.cuh"
#include "core/simt.cuh"
#include "formats/stored.cuh"

namespace kv {

constexpr int kTileGroup = 128, kTileBuckets = 128;
constexpr float kTileStep = 0x1p18f;  // integer steps of one standard deviation; a bucket is 2^16 of them

// Entry i of both tables, 256 bytes apart: the word of bucket i, and the squares of the two values that byte i of packed
// 4-bit-wide codes stands for.
template <class Plan>
KV_DEVICE void fill_encoding_tables() {
  KV_NO_UNROLL
  for (int i = thread(); i < 256 * 32; i += Plan::kThreads) {
    const int entry = i / 32, copy = i % 32 * 4, last = (1 << Plan::kBits) - 1;
    const float low = Plan::value(entry & last), high = Plan::value(entry >> 4 & last);
    if (entry < kTileBuckets) store_shared_u32(entry * 256 + copy, Plan::bucket(entry));
    store_shared_u32(entry * 256 + 128 + copy, bits_of(low * low + high * high));
  }
}

// The +-1 of H16 for the lane, as halves, the signs before the transform included: b[j][0] for h = 0 of the contracted value,
// b[j][1] for h = 1; the result's h = 1 takes the second negated.
template <class Plan>
KV_DEVICE void hadamard_fragments(u32 (&b)[8][2]) {
  const int c = lane() & 3, n = lane() >> 2;
  const u32 parity = u32((c & n >> 1 & 1) ^ (c >> 1 & n >> 2));
  const u32 base = 0x3c003c00u ^ parity * 0x80008000u ^ u32(n & 1) << 31;
  const u32 signs = Plan::pre_signs(c);
  KV_UNROLL
  for (int i = 0; i < 16; ++i) b[i / 2][i % 2] = base ^ (signs >> 2 * i & 1) << 15 ^ (signs >> (2 * i + 1) & 1) << 31;
}

// y = H x for two groups a lane, times sqrt(128); y[j][h]: values i = 0, 1 of group g, then of group g + 8.
KV_DEVICE void transform_tile(float (&y)[8][2][4], const u32 (&x)[2][16], const u32 (&b)[8][2]) {
  KV_UNROLL
  for (int j = 0; j < 8; ++j) {
    KV_UNROLL
    for (int i = 0; i < 8; ++i) y[j][i / 4][i % 4] = 0.f;
    mma_16x8x16(y[j][0], x[0][2 * j], x[1][2 * j], x[0][2 * j + 1], x[1][2 * j + 1], b[j][0], b[j][1]);
    mma_16x8x16(y[j][1], x[0][2 * j], x[1][2 * j], x[0][2 * j + 1], x[1][2 * j + 1], b[j][0], b[j][1] ^ 0x80008000u);
  }
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

// Codes of eight neighbouring values (two j), a nibble each.
template <class Plan>
KV_DEVICE u32 encode_eight(const float (&y)[8][2][4], int eighth, int half, float factor, u32 mine) {
  constexpr float kZero = 0x1.8p23f;  // adding it leaves the nearest integer in the low bits of the sum
  u32 sum[8];
  KV_UNROLL
  for (int m = 0; m < 8; ++m) {
    const u32 bits = bits_of(fma_rn(y[2 * eighth + m / 4][m / 2 % 2][2 * half + m % 2], factor, kZero));
    sum[m] = bits + load_table<0>(permute(bits, mine, 0x5524));
  }
  const u32 even = permute(permute(sum[0], sum[2], 0x0062), permute(sum[4], sum[6], 0x0062), 0x5410);
  const u32 odd = permute(permute(sum[1], sum[3], 0x0062), permute(sum[5], sum[7], 0x0062), 0x5410);
  return odd * 16 + even;
}

// Eight nibbles to eight codes of kBits, packed.
template <int kBits>
KV_DEVICE u32 packed_eight(u32 nibbles) {
  if constexpr (kBits == 4) return nibbles;
  constexpr u32 kOne = (1u << kBits) - 1, kTwo = (1u << 2 * kBits) - 1, kFour = (1u << 4 * kBits) - 1;
  const u32 two = (nibbles & kOne * 0x01010101u) | (nibbles >> (4 - kBits) & (kOne << kBits) * 0x01010101u);
  const u32 four = (two & kTwo * 0x00010001u) | (two >> (8 - 2 * kBits) & (kTwo << 2 * kBits) * 0x00010001u);
  return (four & kFour) | (four >> (16 - 4 * kBits) & kFour << 4 * kBits);
}

// The lane's kBits words of codes, to a place of kCodeUnit bytes of alignment.
template <class Plan>
KV_DEVICE void store_codes(u8* to, const u32 (&nibbles)[4]) {
  constexpr int kBits = Plan::kBits;
  u32 words[kBits] = {};
  KV_UNROLL
  for (int i = 0; i < 4; ++i) {
    const u32 eight = packed_eight<kBits>(nibbles[i]);
    const int at = i * 8 * kBits;
    words[at / 32] |= eight << at % 32;
    if (at % 32 + 8 * kBits > 32) words[at / 32 + 1] |= eight >> (32 - at % 32);
  }
  if constexpr (Plan::kCodeUnit == 16 && kBits == 4)
    store_u128(to, words[0], words[1], words[2], words[3]);
  else
    KV_UNROLL
  for (int i = 0; i < kBits; ++i) {
    if constexpr (Plan::kCodeUnit >= 4) {
      reinterpret_cast<u32*>(to)[i] = words[i];
    } else {
      reinterpret_cast<u16*>(to)[2 * i] = u16(words[i] & 0xffffu);
      reinterpret_cast<u16*>(to)[2 * i + 1] = u16(words[i] >> 16);
    }
  }
}

template <class Plan>
KV_DEVICE void quantise_tiles(const CodecArgs& args) {
  using F = typename Plan::F;
  constexpr int kGroups = Plan::kHeadDim / kTileGroup;
  constexpr float kTiny = 1e-10f;
  check_tables();
  fill_encoding_tables<Plan>();
  sync_block();

  const int g = lane() >> 2, c = lane() & 3;
  const u32 mine = lane() * 4;
  u32 b[8][2], mirror[4] = {};
  hadamard_fragments<Plan>(b);
  const u32 signs = Plan::post_signs(c);
  KV_UNROLL
  for (int i = 0; i < 32; ++i) mirror[i / 8] |= (signs >> i & 1) * ((1u << Plan::kBits) - 1) << i % 8 * 4;

  const u32 tokens = args.tokens, heads = args.heads, rows = args.sequences * heads * tokens;  // fits: the host checks
  // Warps take turns, so that the block writes neighbouring tokens at about the same time.
  KV_NO_UNROLL
  for (int turn = 0; turn < Plan::kTurns; ++turn) {
    const u32 first = ((u32(block_x()) * Plan::kTurns + turn) * Plan::kWarps + warp()) * 16;
    if (first >= rows) return;  // the whole warp
    KV_NO_UNROLL
    for (int group = 0; group < kGroups; ++group) {
      u32 x[2][16];
      StoredRow to[2];
      KV_UNROLL
      for (int i = 0; i < 2; ++i) {
        const u32 given = first + g + 8 * i, row = given < rows ? given : rows - 1;
        const u32 token = row % tokens, head = row / tokens % heads, sequence = row / tokens / heads;
        const i64 slot = args.slots ? args.slots[i64(sequence) * tokens + token] : args.first_token + token;
        const i64 from = sequence * args.x.sequence_stride + token * args.x.query_stride + head * args.x.head_stride +
                         group * kTileGroup + c * 32;
        to[i] = stored_row<F>(args.side, sequence, head, slot);
        if (given >= rows || slot < 0) to[i].codes = nullptr;
        KV_UNROLL
        for (int w = 0; w < 16; w += 4) load_u128(&x[i][w], static_cast<const u16*>(args.x.data) + from + 2 * w);
      }
      float y[8][2][4];
      transform_tile(y, x, b);
      KV_UNROLL
      for (int half = 0; half < 2; ++half) {
        float squares = 0.f;
        KV_UNROLL
        for (int i = 0; i < 32; ++i) {
          const float v = y[i / 4][i / 2 % 2][2 * half + i % 2];
          squares = fma_rn(v, v, squares);
        }
        squares += shfl_xor(squares, 1);
        squares += shfl_xor(squares, 2);
        const float norm = sqrt_rn(squares * (1.f / kTileGroup));
        // y is sqrt(128) times a vector of length norm, so y / norm is in standard deviations.
        const float factor = norm > kTiny ? div_rn(kTileStep, norm) : 0.f;
        u32 nibbles[4];
        float length = 0.f;
        KV_UNROLL
        for (int e = 0; e < 4; ++e) {
          // A block without a direction keeps the codes of zero.
          nibbles[e] = encode_eight<Plan>(y, e, half, factor, mine) ^ (norm > kTiny ? mirror[e] : 0u);
          KV_UNROLL
          for (int byte = 0; byte < 4; ++byte)
            length += float_of(load_table<128>(permute(nibbles[e], mine, 0x5504u | u32(byte) << 4)));
        }
        length += shfl_xor(length, 1);
        length += shfl_xor(length, 2);
        const float rho = sqrt_rn(length);
        if (to[half].codes != nullptr) {
          store_codes<Plan>(to[half].codes + Plan::kCodesAt + group * i64(Plan::kCodeStride) + c * (4 * Plan::kBits),
                            nibbles);
          if (c == 0)
            *reinterpret_cast<u16*>(to[half].scales + Plan::kScaleAt + group * i64(Plan::kScaleStride)) =
                f16_from_f32(Plan::kIsMatched && rho > kTiny ? div_rn(norm, rho) : norm);
        }
      }
    }
  }
}

}  // namespace kv
