// The keywords of functions that host and device share (args/schedule.cuh). KV_SHARED marks such a function,
// KV_SHARED_LOOP a loop in it that is not to be unrolled. This file includes nothing, so that args/ may include it: the
// host runtime knows no other file of the device layer.
// SPDX-License-Identifier: MIT
#pragma once

#if defined(__CUDACC__)
#define KV_SHARED __device__ __forceinline__
#define KV_SHARED_LOOP _Pragma("unroll 1")
#else
#define KV_SHARED inline
#define KV_SHARED_LOOP
#endif
