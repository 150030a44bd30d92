// Encoding in registers: block scales, codes, and the packing of codes into bytes. One warp holds one row,
// value i in lane i % 32, register i / 32. The rules are those of generator/format.hpp (ScaleRule, Rounding);
// the generator names one of each per format.
//
// The arithmetic is the format's own, step by step in fp32: where the last bit decides a stored byte nothing
// is contracted, so the amax formats give the same bytes as ggml, and the norm formats differ from the
// double-precision codec only within 1e-6 of a bound.
// SPDX-License-Identifier: MIT
#pragma once
#include "core/simt.cuh"
#include "formats/stored.cuh"

namespace kv {

// Reduces over the values of each block; every lane of a block gets the result. A block is part of one
// register or whole registers.
template <class F, class Combine, int kPerLane>
KV_DEVICE void over_blocks(float (&x)[kPerLane], const Combine& combine) {
  KV_UNROLL
  for (int stride = 1; stride < 32 && stride < F::kBlock; stride <<= 1) {
    KV_UNROLL
    for (int e = 0; e < kPerLane; ++e) x[e] = combine(x[e], shfl_xor(x[e], stride));
  }
  constexpr int kRegisters = F::kBlock <= 32 ? 1 : F::kBlock / 32;
  KV_UNROLL
  for (int first = 0; first + kRegisters <= kPerLane; first += kRegisters) {
    KV_UNROLL
    for (int e = 1; e < kRegisters; ++e) x[first] = combine(x[first], x[first + e]);
    KV_UNROLL
    for (int e = 1; e < kRegisters; ++e) x[first + e] = x[first];
  }
}

// Codes of a value in units of its scale.
template <class F>
KV_DEVICE u32 clamped_code(int code, int least) {
  return u32(code < least ? least : code > F::kMaxCode ? F::kMaxCode : code);
}
template <class F>
KV_DEVICE u32 round_half_up(float v) {
  return clamped_code<F>(int(add_rn(v, F::kOffset + 0.5f)), 0);
}
template <class F>
KV_DEVICE u32 round_half_away(float v) {
  const int whole = int(v);  // v - whole is exact, so the tie is seen exactly
  const int code = F::kOffset + whole + (absolute(v - float(whole)) >= 0.5f ? (v < 0.f ? -1 : 1) : 0);
  return clamped_code<F>(code, 2 * F::kOffset - F::kMaxCode);  // symmetric
}
template <class F>
KV_DEVICE u32 count_bounds(float v) {  // #{bounds <= v}, by bisection
  u32 code = 0;
  KV_UNROLL
  for (int step = 1 << (F::kBits - 1); step > 0; step >>= 1)
    if (F::bound(code + step - 1) <= v) code += step;
  return code;
}

// d = max|x| / divisor.
struct Amax {
  template <class F, int kPerLane>
  KV_DEVICE static void scales(const float (&x)[kPerLane], float (&d)[kPerLane]) {
    KV_UNROLL
    for (int e = 0; e < kPerLane; ++e) d[e] = absolute(x[e]);
    over_blocks<F>(d, larger);
    KV_UNROLL
    for (int e = 0; e < kPerLane; ++e) d[e] = div_rn(d[e], F::kDivisor);
  }
};

// d = (the x of largest magnitude, sign kept) / divisor; the first of equals wins, so positions take part in
// the comparison.
struct SignedMax {
  template <class F, int kPerLane>
  KV_DEVICE static void scales(const float (&x)[kPerLane], float (&d)[kPerLane]) {
    constexpr int kRegisters = F::kBlock <= 32 ? 1 : F::kBlock / 32;
    KV_UNROLL
    for (int first = 0; first + kRegisters <= kPerLane; first += kRegisters) {
      float best = 0.f;
      u32 at = 0xffffu;
      KV_UNROLL
      for (int e = 0; e < kRegisters; ++e)
        if (absolute(x[first + e]) > absolute(best)) best = x[first + e], at = e * 32 + lane();
      KV_UNROLL
      for (int stride = 1; stride < 32 && stride < F::kBlock; stride <<= 1) {
        const float other = shfl_xor(best, stride);
        const u32 other_at = shfl_xor(at, stride);
        const bool wins = absolute(other) > absolute(best) || (absolute(other) == absolute(best) && other_at < at);
        best = wins ? other : best;
        at = wins ? other_at : at;
      }
      KV_UNROLL
      for (int e = 0; e < kRegisters; ++e) d[first + e] = div_rn(best, F::kDivisor);
    }
  }
};

// One byte a code, and the block's scale as a little-endian half, in shared memory.
template <class F>
KV_DEVICE void store_code(u8* codes, u8* scales, int i, u32 code, float d) {
  codes[i] = u8(code ^ F::kCodeXor);
  if (i % F::kBlock == 0) {
    const u16 half = f16_from_f32(d);
    scales[i / F::kBlock * 2] = u8(half & 0xff);
    scales[i / F::kBlock * 2 + 1] = u8(half >> 8);
  }
}

template <class Rule>
struct AmaxEncoder {
  template <class F, class Rotation, int kPerLane>
  KV_DEVICE static void encode(float (&x)[kPerLane], u8* codes, u8* scales) {
    Rotation::forward(x);
    float d[kPerLane];
    Rule::template scales<F>(x, d);
    KV_UNROLL
    for (int e = 0; e < kPerLane; ++e) {
      const float inverse = d[e] != 0.f ? div_rn(1.f, d[e]) : 0.f;
      store_code<F>(codes, scales, e * 32 + lane(), F::code(mul_rn(x[e], inverse)), d[e]);
    }
  }
};

// The block's code bytes hold the direction of x, its scale the length: |x| (raw), or |x| / |chosen
// centroids| (corrected), which makes the decoded block as long as x was.
template <bool kCorrected>
struct NormEncoder {
  template <class F, class Rotation, int kPerLane>
  KV_DEVICE static void encode(float (&x)[kPerLane], u8* codes, u8* scales) {
    constexpr float kTiny = 1e-10f;
    float norm[kPerLane], length[kPerLane];
    KV_UNROLL
    for (int e = 0; e < kPerLane; ++e) norm[e] = mul_rn(x[e], x[e]);
    over_blocks<F>(norm, add_rn);
    KV_UNROLL
    for (int e = 0; e < kPerLane; ++e) {
      norm[e] = sqrt_rn(norm[e]);
      x[e] = mul_rn(x[e], norm[e] > kTiny ? div_rn(1.f, norm[e]) : 0.f);
    }
    Rotation::forward(x);
    u32 code[kPerLane];
    KV_UNROLL
    for (int e = 0; e < kPerLane; ++e) {
      code[e] = F::code(x[e]);
      length[e] = mul_rn(F::value(code[e]), F::value(code[e]));
    }
    over_blocks<F>(length, add_rn);
    KV_UNROLL
    for (int e = 0; e < kPerLane; ++e) {
      const float rho = sqrt_rn(length[e]);
      store_code<F>(codes, scales, e * 32 + lane(), code[e],
                    kCorrected && rho > kTiny ? div_rn(norm[e], rho) : norm[e]);
    }
  }
};

// Byte j of a packed block, from its codes.
template <class F>
KV_DEVICE u8 packed_byte(const u8* codes, int j) {
  if constexpr (F::kIsSplit) return u8(codes[j] | codes[j + F::kBlock / 2] << 4);
  u32 byte = 0;
  for (int i = j * 8 / F::kBits; i < F::kBlock && i * F::kBits < j * 8 + 8; ++i) {
    const int shift = i * F::kBits - j * 8;
    byte |= shift < 0 ? u32(codes[i]) >> -shift : u32(codes[i]) << shift;
  }
  return u8(byte);
}

}  // namespace kv
