// Device layer (device/simt.cuh), copies of single sectors (PTX ISA 9.0, 9.7.9.25.3). copy_async asks the L2 for whole
// lines of 128 bytes, which helps where a neighbour's copy wants the rest. Rows that lie far apart have no such
// neighbour.
// SPDX-License-Identifier: MIT
#pragma once
#include "device/simt.cuh"

namespace kv {

// copy_async<16> of 16 bytes that exist, but asks the L2 for no more than them.
KV_DEVICE void copy_sector_async(SharedAddress to, const u8* from) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(staged_address(to)), "l"(from) : "memory");
#else
  copy_async<16>(to, from, 16);
#endif
}

}  // namespace kv
