// More of the seam (core/simt.cuh): memory of a kernel's module, zero when it is loaded.
// SPDX-License-Identifier: MIT
#pragma once
#include "core/simt.cuh"

#if defined(__CUDACC__)
#define KV_SCRATCH __device__
#else
#define KV_SCRATCH static
#endif
