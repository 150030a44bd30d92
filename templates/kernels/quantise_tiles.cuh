// quantise, many rows at once: 16 groups of 128 values a warp, rotated by the tensor cores. Serves what long prompts are written
// in (f16 rows, a signed Walsh-Hadamard rotation of 128, a norm over the same 128 values, symmetric codebooks of up to 4 bits);
// kernels/quantise.cuh serves everything.
//
// How a tile is transformed: core/tiles.cuh. The signs after it would only mirror codes of a symmetric codebook, so they are applied to the packed codes.
//
// A code is found without a search: the value becomes an integer in steps of 2^-18 standard deviations by one fused multiply-add;
// its upper bits name a bucket of a quarter, which holds at most one bound, and adding the bucket's word carries into the code
// exactly if the value is not below that bound. Tables are copied for each lane, so look-ups never meet in a bank.
// SPDX-License-Identifier: MIT
#pragma once
#include "core/args.cuh"
#include "core/simt.cuh"
#include "core/tiles.cuh"
#include "formats/stored.cuh"

namespace kv {

constexpr int kTileBuckets = 128;
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

// A group of each of the tile's rows to the stage at `to`, half a row a lane and step.
template <class Plan>
KV_DEVICE void stage_tile_rows(SharedAddress to, const CodecArgs& args, u32 first, u32 rows, int group) {
  const u8* const x = static_cast<const u8*>(args.x.data) + group * (kTileGroup * 2) + lane() % 16 * 16;
  const TileRow start = tile_row(args, first);
  const bool is_together = start.token + kTileRows <= u32(args.tokens) && first + kTileRows <= rows;
  const u8* from = x + row_in_x(args, start) * 2 + (lane() / 16) * args.x.query_stride * 2;
  KV_UNROLL
  for (int i = 0; i < kTileRows / 2; ++i) {
    const int row = 2 * i + lane() / 16;
    if (!is_together)  // the tile spans heads, or the last row
      from = x + row_in_x(args, tile_row(args, first + row < rows ? first + row : rows - 1)) * 2;
    copy_async<16>(staged_chunk(to, row, lane() % 16), from, 16);
    from += args.x.query_stride * 4;
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
  hadamard_fragments(b, Plan::pre_signs(c));
  const u32 signs = Plan::post_signs(c);
  KV_UNROLL
  for (int i = 0; i < 32; ++i) mirror[i / 8] |= (signs >> i & 1) * ((1u << Plan::kBits) - 1) << i % 8 * 4;

  // The block takes block_rows rows; its warps take turns, so that neighbouring tokens are written at about the same time.
  // The next tile is on its way while this one is encoded.
  const u32 all = u32(args.sequences) * args.heads * args.tokens, begin = u32(block_x()) * args.block_rows;
  const u32 end = begin + args.block_rows < all ? begin + args.block_rows : all;  // fits: the host checks
  const SharedAddress ring = 256 * 256 + warp() * (2 * kTileStage);
  u32 next = begin + warp() * kTileRows;
  int next_group = 0, fill = 0;
  const auto stage_next = [&] {
    if (next < end) stage_tile_rows<Plan>(ring + fill * kTileStage, args, next, all, next_group);
    copy_commit();
    fill ^= 1;
    if (++next_group == kGroups) next_group = 0, next += Plan::kWarps * kTileRows;
  };
  stage_next();
  int group = 0, take = 0;
  KV_NO_UNROLL
  for (u32 first = begin + warp() * kTileRows; first < end;) {
    stage_next();
    copy_wait<1>();
    sync_warp();  // every lane's copies of this tile have landed
    u32 x[2][16];
    KV_UNROLL
    for (int i = 0; i < 8; ++i)
      load_shared_u128(&x[i / 4][i % 4 * 4], staged_chunk(ring + take * kTileStage, g + i / 4 * 8, c * 4 + i % 4));
    sync_warp();  // every lane has read the stage that is filled next
    take ^= 1;
    float y[8][2][4] = {};
    add_products(y, x, b);
    butterflies(y);
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
      const u32 row = first + g + 8 * half;
      if (row < end) {
        const TileRow at = tile_row(args, row);
        const i64 slot =
            args.slots ? args.slots[i64(at.sequence) * args.tokens + at.token] : args.first_token + at.token;
        const StoredRow to = stored_row<F>(args.side, at.sequence, at.head, slot);
        if (slot >= 0) {
          store_codes<Plan>(to.codes + Plan::kCodesAt + group * i64(Plan::kCodeStride) + c * (4 * Plan::kBits),
                            nibbles);
          if (c == 0)
            *reinterpret_cast<u16*>(to.scales + Plan::kScaleAt + group * i64(Plan::kScaleStride)) =
                f16_from_f32(Plan::kIsMatched && rho > kTiny ? div_rn(norm, rho) : norm);
        }
      }
    }
    if (++group == kGroups) group = 0, first += Plan::kWarps * kTileRows;
  }
}

}  // namespace kv
