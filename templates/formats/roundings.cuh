// Roundings that few formats have: of codes half to even, of values to a grid, and of scales up or to the nearest power
// of two. The generator names them where formats/codes.cuh and formats/minifloat.cuh have others.
// SPDX-License-Identifier: MIT
#pragma once
#include "formats/codes.cuh"
#include "formats/minifloat.cuh"

namespace kv {

// v rounded to an integer, halves to the even one, plus offset, clamped. A NaN gets the least code.
struct HalfEven {
  template <class Data>
  KV_DEVICE static u32 code(float v) {
    v = smaller(larger(v, float(Data::kLeast - Data::kOffset)), float(Data::kMost - Data::kOffset));
    // The sum with 1.5 * 2^23 has no bits below 1; its lowest bits are the integer.
    return u32(Data::kOffset + int(bits_of(add_rn(v, 12582912.f)) - 0x4B400000u));
  }
};

// A table of kMost + 1 entries that are evenly spaced from -1 to 1. The code is the place of v on that grid, rounded
// half to even and clamped. A NaN gets the code 0.
template <class Data>
struct GridCodes : Data {
  static constexpr bool kIsTable = true, kIsWide = false;
  KV_DEVICE static u32 code(float v) {
    constexpr float kMost = float((1 << Data::kBits) - 1), kHalf = kMost / 2;
    const float place = smaller(larger(add_rn(mul_rn(v, kHalf), kHalf), 0.f), kMost);
    return bits_of(add_rn(place, 8388608.f)) & 0x7fffffu;
  }
};

// E8M0 rounded up: the least power of two that is not below f.
struct E8m0Up : E8m0 {
  KV_DEVICE static u32 encode(float v) {
    const u32 down = e8m0_from_f32(v);
    return down + (down < 255u && v > f32_from_e8m0(down));
  }
};
// A float32 rounded up to a power of two: E8M0 rounded up, as the exponent.
struct F32Up : F32 {
  KV_DEVICE static u32 encode(float v) { return E8m0Up::encode(v) << 23; }
};
// E8M0 to the nearest power of two by the logarithm: 2^floor(log2 f + 1/2), so up from 2^(1/2) on.
struct E8m0Nearest : E8m0 {
  KV_DEVICE static u32 encode(float v) {
    const u32 down = e8m0_from_f32(v);
    return down + (down < 255u && v > mul_rn(f32_from_e8m0(down), 1.41421354f));  // the float below 2^(1/2)
  }
};
// E4M3 of a number that is not negative, rounded up: the least that is not below f, or 448.
struct E4m3Up : E4m3 {
  KV_DEVICE static u32 encode(float v) {
    const u32 nearest = e4m3_from_f32(v);
    return nearest + (nearest < 0x7eu && f32_from_e4m3(nearest) < v);
  }
};

}  // namespace kv
