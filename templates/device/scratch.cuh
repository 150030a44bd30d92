// More of the seam (device/simt.cuh): memory of a kernel's module, zero when it is loaded.
// SPDX-License-Identifier: MIT
#pragma once
#include "device/simt.cuh"

#if defined(__CUDACC__)
#define KV_SCRATCH __device__
#else
#define KV_SCRATCH static
#endif
