// Device layer (device/simt.cuh), scratch memory: KV_SCRATCH declares memory of a kernel's module, which is zero when
// the module is loaded.
// SPDX-License-Identifier: MIT
#pragma once
#include "device/simt.cuh"

#if defined(__CUDACC__)
#define KV_SCRATCH __device__
#else
#define KV_SCRATCH static
#endif
