// Device layer (device/simt.cuh), functions for kernels with features. They are approximations, as exp2_fast is.
// Section numbers are those of the PTX ISA manual 9.0.
// SPDX-License-Identifier: MIT
#pragma once
#include "device/simt.cuh"

#if defined(__CUDACC__)
namespace kv {

KV_DEVICE float log2_fast(float x) {  // 9.7.3.19: error 2^-22, absolute between 1/2 and 2, relative elsewhere
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
KV_DEVICE float reciprocal_fast(float x) {  // 9.7.3.13: error 1 ulp; infinity gives 0
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace kv
#endif
