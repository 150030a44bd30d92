// Device layer (device/simt.cuh): one lane of a warp, on sm_90 and later. The assembler knows that no other lane passes
// (PTX ISA 9.0, 9.7.13.16), so a bulk copy behind it needs no loop over lanes. All lanes of the warp call it.
// SPDX-License-Identifier: MIT
#pragma once
#include "device/simt.cuh"

namespace kv {

KV_DEVICE bool elect() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  u32 is_elected;
  asm volatile("{.reg .pred p; elect.sync _|p, 0xffffffff; selp.u32 %0, 1, 0, p;}" : "=r"(is_elected));
  return is_elected;
#else
  return lane() == 0;
#endif
}

}  // namespace kv
