// Device layer (device/simt.cuh), sine and cosine for rotary positions. Section numbers are those of the PTX ISA manual
// 9.0.
// SPDX-License-Identifier: MIT
#pragma once
#include "device/simt.cuh"

#if defined(__CUDACC__)
namespace kv {

KV_DEVICE float sine_fast(float x) {  // 9.7.3.17: error 2^-20.5, absolute, between -pi and pi
  float y;
  asm("sin.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
KV_DEVICE float cosine_fast(float x) {  // 9.7.3.18: the same error
  float y;
  asm("cos.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace kv
#endif
