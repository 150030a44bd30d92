// Device layer (device/simt.cuh), products by warpgroups with the first operand in registers. The second operand, the
// columns, stands in shared memory as 8 x 8 matrices of halves: [block of 8 columns][half of 16 k], 128 bytes each
// (core matrices of PTX ISA 9.0, section 9.7.15.5.1, without swizzling). The CPU meaning of each name is in
// device/cpu.hpp.
// SPDX-License-Identifier: MIT
#pragma once
#include "device/wgmma.cuh"

#if defined(__CUDACC__)
namespace kv {

// columns_at encodes for an instruction where columns of 16 k are; columns_behind is the same, `bytes` further on. Both
// values are warp-uniform. uniform() tells the compiler that a value is warp-uniform.
KV_DEVICE u32 columns_at(SharedAddress b) { return 8u << 16 | (kSharedStart + b) >> 4; }  // in units of 16 bytes
KV_DEVICE u32 columns_behind(u32 columns, int bytes) { return columns + bytes / 16; }
KV_DEVICE void store_columns(SharedAddress a, u32 v) {
  asm volatile("st.shared.u32 [%0], %1;" ::"r"(staged_address(a)), "r"(v) : "memory");
}
KV_DEVICE u32 uniform(u32 v) { return __reduce_or_sync(0xffffffffu, v); }

// d[64 x kColumns] += a[64 x 16] b[16 x kColumns]; adds = false (a constant, once unrolled): d = a b. a is as in
// mma_16x8x16, of the warp's 16 rows. d(4 t + i) is what mma_16x8x16 has as d[i], for block t of columns. A row of a
// matrix of b is a column n, 8 k long; if kIsTransposed, it is a k, 8 columns long.
//
// Products are issued between wgmma_begin and wgmma_commit. Nothing may touch a or d before the wait for them. The
// compiler does not ensure that: it reuses the registers of a while the tensor cores still read them, which shows on a
// device only.
#define KV_WGMMA_COLUMNS(type)                                                                                        \
  if constexpr (kColumns == 16)                                                                                       \
    asm volatile(                                                                                                     \
        "{ .reg .pred adds; setp.ne.b32 adds, %13, 0;\n"                                                              \
        "wgmma.mma_async.sync.aligned.m64n16k16.f32." type "." type                                                   \
        " "                                                                                                           \
        "{%0, %1, %2, %3, %4, %5, %6, %7}, "                                                                          \
        "{%8, %9, %10, %11}, %12, adds, 1, 1, %14; }"                                                                 \
        : "+f"(d(0)), "+f"(d(1)), "+f"(d(2)), "+f"(d(3)), "+f"(d(4)), "+f"(d(5)), "+f"(d(6)), "+f"(d(7))              \
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(descriptor), "r"(int(adds)), "n"(int(kIsTransposed)));              \
  if constexpr (kColumns == 32)                                                                                       \
    asm volatile(                                                                                                     \
        "{ .reg .pred adds; setp.ne.b32 adds, %21, 0;\n"                                                              \
        "wgmma.mma_async.sync.aligned.m64n32k16.f32." type "." type                                                   \
        " "                                                                                                           \
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, "                                    \
        "{%16, %17, %18, %19}, %20, adds, 1, 1, %22; }"                                                               \
        : "+f"(d(0)), "+f"(d(1)), "+f"(d(2)), "+f"(d(3)), "+f"(d(4)), "+f"(d(5)), "+f"(d(6)), "+f"(d(7)), "+f"(d(8)), \
          "+f"(d(9)), "+f"(d(10)), "+f"(d(11)), "+f"(d(12)), "+f"(d(13)), "+f"(d(14)), "+f"(d(15))                    \
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(descriptor), "r"(int(adds)), "n"(int(kIsTransposed)));              \
  if constexpr (kColumns == 64)                                                                                       \
    asm volatile(                                                                                                     \
        "{ .reg .pred adds; setp.ne.b32 adds, %37, 0;\n"                                                              \
        "wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type                                                   \
        " "                                                                                                           \
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                                     \
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "                           \
        "{%32, %33, %34, %35}, %36, adds, 1, 1, %38; }"                                                               \
        : "+f"(d(0)), "+f"(d(1)), "+f"(d(2)), "+f"(d(3)), "+f"(d(4)), "+f"(d(5)), "+f"(d(6)), "+f"(d(7)), "+f"(d(8)), \
          "+f"(d(9)), "+f"(d(10)), "+f"(d(11)), "+f"(d(12)), "+f"(d(13)), "+f"(d(14)), "+f"(d(15)), "+f"(d(16)),      \
          "+f"(d(17)), "+f"(d(18)), "+f"(d(19)), "+f"(d(20)), "+f"(d(21)), "+f"(d(22)), "+f"(d(23)), "+f"(d(24)),     \
          "+f"(d(25)), "+f"(d(26)), "+f"(d(27)), "+f"(d(28)), "+f"(d(29)), "+f"(d(30)), "+f"(d(31))                   \
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(descriptor), "r"(int(adds)), "n"(int(kIsTransposed)));

// kAreBfloats: a and b have bfloats instead of halves.
template <int kColumns, bool kIsTransposed, bool kAreBfloats = false, class Sums>
KV_DEVICE void wgmma_columns(const Sums& d, u32 a0, u32 a1, u32 a2, u32 a3, u32 b, bool adds) {
  static_assert(kColumns == 16 || kColumns == 32 || kColumns == 64, "other widths are not spelled out");
  // 128 bytes lie between the halves of k, and 256 between blocks of columns; the descriptor counts units of 16 bytes.
  const unsigned long long descriptor = 16ull << 32 | b;
  if constexpr (kAreBfloats) {
    KV_WGMMA_COLUMNS("bf16")
  } else {
    KV_WGMMA_COLUMNS("f16")
  }
}

// Waits until at most kLeft committed batches of products are still in flight.
template <int kLeft>
KV_DEVICE void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kLeft) : "memory");
}
// Nothing that reads or writes v moves across this.
KV_DEVICE void settle(float& v) { asm volatile("" : "+f"(v)::"memory"); }

}  // namespace kv
#endif
