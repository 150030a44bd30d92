// Small floats as cache formats store them, by integer arithmetic: every GPU and the CPU compute the same bits.
// SPDX-License-Identifier: MIT
#pragma once
#include "core/simt.cuh"

namespace kv {

// OCP E4M3FN: the fields moved to a float's place and rescaled by 2^(127 - 7); subnormals come out right. 0x7F is NaN.
KV_DEVICE float f32_from_e4m3(u32 b) {
  const u32 magnitude = b & 0x7fu, sign = (b & 0x80u) << 24;
  if (magnitude == 0x7fu) return float_of(0x7fc00000u | sign);
  return float_of(bits_of(float_of(magnitude << 20) * float_of(0x7b800000u)) | sign);  // 2^120
}
KV_DEVICE float f32_from_e5m2(u32 b) { return f32_from_f16(b << 8); }
// ggml's UE4M3: no sign, 0x7F decodes to 0.
KV_DEVICE float f32_from_ue4m3(u32 b) { return (b & 0x7fu) == 0x7fu ? 0.f : f32_from_e4m3(b & 0x7fu); }
// E8M0: 2^(b - 127); 2^-127 is a float's subnormal.
KV_DEVICE float f32_from_e8m0(u32 b) { return float_of(b == 0 ? 0x00400000u : b << 23); }

}  // namespace kv
