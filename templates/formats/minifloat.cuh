// Small floats as cache formats store them. Every GPU and the CPU compute the same bits: by integer arithmetic, or by
// instructions that are known to give them. Encoding rounds to nearest even unless its comment says otherwise. The
// number types of elements and scales follow below the functions.
// SPDX-License-Identifier: MIT
#pragma once
#include "device/simt.cuh"

namespace kv {

// OCP E4M3FN. The fields move to their place in a float, which is rescaled by 2^(127 - 7); so subnormals come out
// right. 0x7F is NaN.
KV_DEVICE float f32_from_e4m3(u32 b) {
  const u32 magnitude = b & 0x7fu, sign = (b & 0x80u) << 24;
  if (magnitude == 0x7fu) return float_of(0x7fc00000u | sign);
  return float_of(bits_of(float_of(magnitude << 20) * float_of(0x7b800000u)) | sign);  // 2^120
}
KV_DEVICE float f32_from_e5m2(u32 b) { return f32_from_f16(b << 8); }
// ggml's UE4M3 has no sign bit. 0x7F decodes to 0.
KV_DEVICE float f32_from_ue4m3(u32 b) { return (b & 0x7fu) == 0x7fu ? 0.f : f32_from_e4m3(b & 0x7fu); }
// E8M0 is 2^(b - 127). 2^-127 is a subnormal float, and 2^128 is infinity.
KV_DEVICE float f32_from_e8m0(u32 b) { return float_of(b == 0 ? 0x00400000u : b << 23); }

// e4m3_from_f32 and e5m2_from_f32 have no branches, because they are called for every value. They compute the bits of a
// normal number, rounded where they are cut off, and of a subnormal one, which the adder rounds at its last place.
//
// E4M3: |f| from 448 on saturates, infinity too. A NaN loses its sign.
KV_DEVICE u32 e4m3_from_f32(float f) {
  if constexpr (kConvertsToE4m3) return convert_to_e4m3(f);
  const u32 sign = bits_of(f) >> 24 & 0x80u, a = bits_of(f) & 0x7fffffffu;
  const u32 normal = ((a + 0x7ffffu + (a >> 20 & 1)) >> 20) - (120u << 3);
  const u32 subnormal = bits_of(add_rn(float_of(a), 16384.f)) - 0x46800000u;
  const u32 number = a < 0x3c800000u ? subnormal : normal < 0x7eu ? normal : 0x7eu;
  return a > 0x7f800000u ? 0x7fu : sign | number;
}
// E5M2: |f| from 61440 on, halfway between 57344 and the next power of two, becomes infinity. A NaN keeps its sign.
KV_DEVICE u32 e5m2_from_f32(float f) {
  const u32 sign = bits_of(f) >> 24 & 0x80u, a = bits_of(f) & 0x7fffffffu;
  const u32 normal = ((a + 0xfffffu + (a >> 21 & 1)) >> 21) - (112u << 2);
  const u32 subnormal = bits_of(add_rn(float_of(a), 128.f)) - 0x43000000u;
  const u32 number = a < 0x38800000u ? subnormal : normal < 0x7cu ? normal : 0x7cu;
  return sign | (a > 0x7f800000u ? 0x7eu : number);
}
// UE4M3, halves rounded up (ggml-impl.h: ggml_fp32_to_ue4m3). A number that is not positive, or NaN, gives 0. A number
// that would need exponent 15 gives 0x7E. A subnormal does not carry into the normal numbers.
KV_DEVICE u32 ue4m3_from_f32(float f) {
  if (!(f > 0.f)) return 0;
  if (f >= 256.f) return 0x7e;
  if (f < 0.015625f) return u32(smaller(add_rn(mul_rn(f, 512.f), 0.5f), 7.f));  // in units of 2^-9
  const u32 code = ((bits_of(f) + 0x80000u) >> 20) - (120u << 3);
  return code < 0x78u ? code : 0x7eu;
}
// E8M0: the power of two at or below f; 255 for infinity. Numbers below 2^-126 and NaN give 0, which means 2^-127.
KV_DEVICE u32 e8m0_from_f32(float f) { return f > 0.f ? bits_of(f) >> 23 : 0; }

// Number types: how an element or a scale is stored. A wide type has all exponents of f32.
struct F16 {
  static constexpr int kBytes = 2;
  static constexpr bool kIsWide = false;
  KV_DEVICE static float decode(u32 bits) { return f32_from_f16(bits); }
  KV_DEVICE static u32 encode(float v) { return f16_from_f32(v); }
};
struct Bf16 {
  static constexpr int kBytes = 2;
  static constexpr bool kIsWide = true;
  KV_DEVICE static float decode(u32 bits) { return f32_from_bf16(bits); }
  KV_DEVICE static u32 encode(float v) { return bf16_from_f32(v); }
};
struct F32 {
  static constexpr int kBytes = 4;
  static constexpr bool kIsWide = true;
  KV_DEVICE static float decode(u32 bits) { return float_of(bits); }
  KV_DEVICE static u32 encode(float v) { return bits_of(v); }
};
struct E4m3 {
  static constexpr int kBytes = 1;
  static constexpr bool kIsWide = false;
  KV_DEVICE static float decode(u32 bits) { return f32_from_e4m3(bits); }
  KV_DEVICE static u32 encode(float v) { return e4m3_from_f32(v); }
};
struct E5m2 {
  static constexpr int kBytes = 1;
  static constexpr bool kIsWide = false;
  KV_DEVICE static float decode(u32 bits) { return f32_from_e5m2(bits); }
  KV_DEVICE static u32 encode(float v) { return e5m2_from_f32(v); }
};
struct Ue4m3 {
  static constexpr int kBytes = 1;
  static constexpr bool kIsWide = false;
  KV_DEVICE static float decode(u32 bits) { return f32_from_ue4m3(bits); }
  KV_DEVICE static u32 encode(float v) { return ue4m3_from_f32(v); }
};
struct E8m0 {
  static constexpr int kBytes = 1;
  static constexpr bool kIsWide = true;
  KV_DEVICE static float decode(u32 bits) { return f32_from_e8m0(bits); }
  KV_DEVICE static u32 encode(float v) { return e8m0_from_f32(v); }
};

}  // namespace kv
