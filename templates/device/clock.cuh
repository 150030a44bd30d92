// Device layer (device/simt.cuh), clocks (PTX ISA 9.0, section 10): the cycles of this multiprocessor, and the device's
// timer, whose resolution depends on the device. The CPU meaning of both is in device/cpu.hpp.
// SPDX-License-Identifier: MIT
#pragma once
#include "device/simt.cuh"

#if defined(__CUDACC__)
namespace kv {

KV_DEVICE i64 read_cycles() {
  i64 v;
  asm volatile("mov.u64 %0, %%clock64;" : "=l"(v)::"memory");
  return v;
}
KV_DEVICE i64 read_nanoseconds() {
  i64 v;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(v)::"memory");
  return v;
}

}  // namespace kv
#endif
