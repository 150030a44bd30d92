// E4M3 with a bias of 15, without infinity and NaN: Triton's fp8e4b15, which vLLM stores on GPUs before sm_89. It is
// rounded half up in magnitude, and saturates at 1.75.
// SPDX-License-Identifier: MIT
#pragma once
#include "formats/codes.cuh"

namespace kv {

struct E4m3b15 {
  static constexpr int kBytes = 1;
  static constexpr bool kIsWide = false;
  // A half has the same bias and one bit more of exponent.
  KV_DEVICE static float decode(u32 bits) { return f32_from_f16((bits & 0x80u) << 8 | (bits & 0x7fu) << 7); }
  KV_DEVICE static u32 encode(float v) {
    const float size = smaller(absolute(v), 1.75f);  // 1.75 of a NaN
    // Below 2^-14 the lowest bit is 2^-17. Above it is bit 20 of a float, whose bias is 112 more.
    const u32 code = size < 0x1p-14f ? whole_part(add_rz(mul_rn(size, 0x1p17f), 0.5f))
                                     : (bits_of(size) - (112u << 23) + (1u << 19)) >> 20;
    return code | (v != v ? 0u : bits_of(v) >> 24 & 0x80u);
  }
};

}  // namespace kv
