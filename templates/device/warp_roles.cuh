// Device layer (device/simt.cuh), kernels whose warpgroups have roles: registers that move from one role to another,
// turns at the tensor cores, and products whose second operand is transposed. PTX ISA 9.0, sections 9.7.13.1, 9.7.15
// and 9.7.19.5. For sm_90a. The CPU meaning of each name is in device/cpu.hpp.
// SPDX-License-Identifier: MIT
#pragma once
#include "device/wgmma.cuh"
#include "device/wgmma_columns.cuh"

#if defined(__CUDACC__)
namespace kv {

// Sets the registers of each thread of the warp, a multiple of 8 from 24 to 240. release_registers gives some back to
// the block; request_registers waits until the block has as many. A block owns what it was launched with: a request
// that no release covers waits for ever. Every warp of a warpgroup calls the same one.
template <int kRegisters>
KV_DEVICE void release_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
KV_DEVICE void request_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// Stores eight bytes, as store_shared_u32 (device/simt.cuh) stores four.
KV_DEVICE void store_shared_u64(SharedAddress a, u32 x, u32 y) {
  struct alignas(8) Words2 {
    u32 x, y;
  };
  *reinterpret_cast<Words2*>(shared_bytes() + a) = {x, y};
}

// Two warpgroups take turns at the tensor cores, so that one multiplies while the other computes its softmax. `group`
// is 0 or 1. Each has a barrier on which it waits and which the other one passes. Both must have the same number of
// turns.
KV_DEVICE void pass_tensor_order(int group) { asm volatile("bar.arrive %0, 256;" ::"r"(7 - group) : "memory"); }
KV_DEVICE void await_tensor_order(int group) { asm volatile("bar.sync %0, 256;" ::"r"(6 + group) : "memory"); }
KV_DEVICE void open_tensor_order(int group) {  // group 1 lets group 0 go first
  if (group == 1) pass_tensor_order(group);
}

// Nothing that depends on `sum`, which is never negative, moves behind the next barrier. The assembler moves arithmetic
// across barriers, but no store; so a store that never happens waits for the sum.
KV_DEVICE void finish_before_barrier(float sum) {
  asm volatile("{ .reg .pred never; setp.lt.f32 never, %0, 0f00000000;\n@never st.shared.f32 [%1], %0; }" ::"f"(sum),
               "r"(kSharedStart)
               : "memory");
}

// As count_arrival and count_warp_arrival (device/simt.cuh), but several counters share a word: adds `add` to it.
KV_DEVICE u32 add_arrival(u32* counter, u32 add) {
  u32 before;
  asm volatile("atom.add.acq_rel.gpu.global.u32 %0, [%1], %2;" : "=r"(before) : "l"(counter), "r"(add) : "memory");
  return before;
}
KV_DEVICE u32 add_warp_arrival(u32* counter, u32 add) {
  u32 before = 0;
  sync_warp();
  if (lane() == 0) before = add_arrival(counter, add);
  sync_warp();
  return shfl(before, 0);
}

// d[64 x 128] += a[64 x 16] b[16 x 128]. The operand holds b transposed with regard to wgmma_64x128x16: entry (k, n) is
// at operand_place(k, n). `step` says which 16 of its 128 k are multiplied. a: the words 4 step .. 4 step + 3.
template <int kPanel = kPanelBytes>
KV_DEVICE unsigned long long step_of_transposed(SharedAddress operand, int step) {
  // The leading offset, between panels, and the offset of 1024 bytes between groups of eight k; both / 16.
  return 1ull << 62 | 64ull << 32 | u32((u32(kPanel / 16) << 16 | (kSharedStart + operand) >> 4) + step * (2048 / 16));
}
KV_DEVICE void wgmma_64x128x16_transposed(float (&d)[64], const u32 (&a)[32], SharedAddress operand, int step) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 " KV_SUM_NAMES
               "{%64, %65, %66, %67}, %68, 1, 1, 1, 1;"
               : KV_SUMS(d)
               : "r"(a[4 * step]), "r"(a[4 * step + 1]), "r"(a[4 * step + 2]), "r"(a[4 * step + 3]),
                 "l"(step_of_transposed(operand, step)));
}
// The same for 256 columns, four panels.
#define KV_SUM_NAMES_128                                                                         \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                      \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "             \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "             \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "             \
  "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "             \
  "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "             \
  "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
  "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127}, "
KV_DEVICE void wgmma_64x256x16_transposed(float (&d)[128], const u32 (&a)[32], SharedAddress operand, int step) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16 " KV_SUM_NAMES_128
               "{%128, %129, %130, %131}, %132, 1, 1, 1, 1;"
               : KV_SUMS(d), KV_SUMS(d + 64)
               : "r"(a[4 * step]), "r"(a[4 * step + 1]), "r"(a[4 * step + 2]), "r"(a[4 * step + 3]),
                 "l"(step_of_transposed(operand, step)));
}
// The same for 64 columns: the operand is one panel.
KV_DEVICE void wgmma_64x64x16_transposed(float (&d)[32], const u32 (&a)[32], SharedAddress operand, int step) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
      "{%32, %33, %34, %35}, %36, 1, 1, 1, 1;"
      : KV_SUMS_32(d)
      : "r"(a[4 * step]), "r"(a[4 * step + 1]), "r"(a[4 * step + 2]), "r"(a[4 * step + 3]),
        "l"(step_of_transposed(operand, step)));
}

// d[64 x 32] += a[64 x 16] b[16 x 32], or d = a b. rows, columns: both operands, in panels of 64 rows.
template <bool kAdds>
KV_DEVICE void wgmma_64x32x16(float (&d)[16], SharedAddress rows, SharedAddress columns, int step) {
  asm volatile(
      "{ .reg .pred adds; setp.ne.b32 adds, %18, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, %16, %17, adds, 1, 1, 0, 0; }"
      : KV_SUMS_8(d), KV_SUMS_8(d + 8)
      : "l"(step_of_rows(rows, step)), "l"(step_of_rows(columns, step)), "n"(int(kAdds)));
}
// d[64 x 256] += a[64 x 16] b[16 x 256]. rows: a, and operand: b transposed, of 64 k each, in panels of 64 rows.
KV_DEVICE void wgmma_64x256x16_transposed(float (&d)[128], SharedAddress rows, SharedAddress operand, int step) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16 " KV_SUM_NAMES_128 "%128, %129, 1, 1, 1, 0, 1;"
               : KV_SUMS(d), KV_SUMS(d + 64)
               : "l"(step_of_rows(rows, step)), "l"(step_of_transposed<kRowPanelBytes>(operand, step)));
}

// settle_sums: no reader of d moves above this. keep_words: p keeps its registers until here, because products that the
// compiler does not see still read them.
template <int kCount>
KV_DEVICE void settle_sums(float (&d)[kCount]) {
  KV_UNROLL
  for (int i = 0; i < kCount; ++i) settle(d[i]);
}
KV_DEVICE void keep_words(u32 (&p)[32]) {
  KV_UNROLL
  for (int i = 0; i < 32; ++i) asm volatile("" : "+r"(p[i])::"memory");
}

}  // namespace kv
#endif
