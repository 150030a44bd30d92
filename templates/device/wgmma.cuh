// Device layer (device/simt.cuh), products by warpgroups on sm_90a, and what feeds their operands. A warpgroup is four
// warps, the first of which has a multiple of four as its number. The products are asynchronous: they read operands in
// shared memory, or the first one in registers, while the warps go on. PTX ISA 9.0, section 9.7.15. The CPU meaning of
// each name is in device/cpu.hpp.
// SPDX-License-Identifier: MIT
#pragma once
#include "device/simt.cuh"

namespace kv {

// The place of entry (column n, k) of the second operand of wgmma in shared memory. The operand is 128 columns of 128
// halves, and begins at a multiple of 1024 bytes. It is two panels of 64 k. A column is 128 bytes of its panel, whose
// 16-byte chunks are exchanged by n (9.7.15.5.1, 128-byte swizzling, K-major).
constexpr int kPanelBytes = 128 * 128, kOperandBytes = 2 * kPanelBytes;
KV_DEVICE SharedAddress operand_place(int n, int k) {
  return k / 64 * kPanelBytes + n * 128 + ((k / 8 ^ n) & 7) * 16 + k % 8 * 2;
}

// The same for an operand of E4M3, which is one panel of 128 k.
constexpr int kByteOperandBytes = kPanelBytes;
KV_DEVICE SharedAddress byte_operand_place(int n, int k) { return n * 128 + ((k / 16 ^ n) & 7) * 16 + k % 16; }

// The place of a 16-byte chunk of a row of the first operand in shared memory. The operand is 64 rows of 128 halves,
// with the same layout, and begins at a multiple of 1024 bytes.
constexpr int kRowPanelBytes = 64 * 128, kRowOperandBytes = 2 * kRowPanelBytes;
KV_DEVICE SharedAddress row_operand_place(int row, int chunk) {
  return chunk / 8 * kRowPanelBytes + row * 128 + ((chunk ^ row) & 7) * 16;
}

}  // namespace kv

#if defined(__CUDACC__)
namespace kv {

// Makes this lane's stores to shared memory visible to wgmma, once a barrier has followed.
KV_DEVICE void publish_operands() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// The descriptor of the part of an operand that begins `offset` bytes behind its start (9.7.15.5.1.2): the address /
// 16; the 1024 bytes between groups of eight columns, / 16; 128-byte swizzling.
KV_DEVICE unsigned long long operand_descriptor(SharedAddress start, int offset) {
  return 1ull << 62 | 64ull << 32 | u32((1u << 16 | (kSharedStart + start) >> 4) + offset / 16);
}

// The 64 sums of a lane as operands of an instruction, the first ones.
#define KV_SUM_NAMES                                                  \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, "     \
  "%14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, " \
  "%27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, " \
  "%40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, " \
  "%53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
#define KV_SUMS_8(d) \
  "+f"((d)[0]), "+f"((d)[1]), "+f"((d)[2]), "+f"((d)[3]), "+f"((d)[4]), "+f"((d)[5]), "+f"((d)[6]), "+f"((d)[7])
#define KV_SUMS_32(d) KV_SUMS_8(d), KV_SUMS_8((d) + 8), KV_SUMS_8((d) + 16), KV_SUMS_8((d) + 24)
#define KV_SUMS(d) KV_SUMS_32(d), KV_SUMS_32((d) + 32)

// d[64 x 128] += a[64 x 16] b[16 x 128]; kAdds = false: d = a b. Warp w of the group holds rows 16 w .. 16 w + 15. With
// lane = 4 g + c:
//   a as in mma_16x8x16      d[4 t + 2 h + i] = D[16 w + g + 8 h][8 t + 2 c + i]
//   or a: rows of an operand in shared memory, of halves; or of bfloats, and then the second operand is of bfloats, too
// `operand` is the second operand, 128 x 128 halves. `step` says which 16 of its k are multiplied. Products are issued
// between wgmma_begin and wgmma_commit. Until wgmma_end nothing may touch a or d.
KV_DEVICE void wgmma_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
KV_DEVICE unsigned long long step_of_operand(SharedAddress operand, int step) {
  return operand_descriptor(operand, step / 4 * kPanelBytes + step % 4 * 32);
}
KV_DEVICE unsigned long long step_of_rows(SharedAddress rows, int step) {
  return operand_descriptor(rows, step / 4 * kRowPanelBytes + step % 4 * 32);
}
template <bool kAdds>
KV_DEVICE void wgmma_64x128x16(float (&d)[64], const u32 (&a)[4], SharedAddress operand, int step) {
  asm volatile(
      "{ .reg .pred adds; setp.ne.b32 adds, %69, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 " KV_SUM_NAMES "{%64, %65, %66, %67}, %68, adds, 1, 1, 0; }"
      : KV_SUMS(d)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(step_of_operand(operand, step)), "n"(int(kAdds)));
}
template <bool kAdds>
KV_DEVICE void wgmma_64x128x16(float (&d)[64], SharedAddress rows, SharedAddress operand, int step) {
  asm volatile(
      "{ .reg .pred adds; setp.ne.b32 adds, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 " KV_SUM_NAMES "%64, %65, adds, 1, 1, 0, 0; }"
      : KV_SUMS(d)
      : "l"(step_of_rows(rows, step)), "l"(step_of_operand(operand, step)), "n"(int(kAdds)));
}
struct BfloatRows {  // a first operand in shared memory whose rows are bfloats
  SharedAddress at;
};
template <bool kAdds>
KV_DEVICE void wgmma_64x128x16(float (&d)[64], BfloatRows rows, SharedAddress operand, int step) {
  asm volatile(
      "{ .reg .pred adds; setp.ne.b32 adds, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 " KV_SUM_NAMES "%64, %65, adds, 1, 1, 0, 0; }"
      : KV_SUMS(d)
      : "l"(step_of_rows(rows.at, step)), "l"(step_of_operand(operand, step)), "n"(int(kAdds)));
}
// The same for 32 k of E4M3, four to a word: word r of a holds row g + 8 (r % 2), k = 16 (r / 2) + 4 c .. + 3. The
// operand is one panel. sm_90 computes sums of these products, and what they are added to, with 14 bits only.
template <bool kAdds>
KV_DEVICE void wgmma_64x128x32_e4m3(float (&d)[64], const u32 (&a)[4], SharedAddress operand, int step) {
  asm volatile(
      "{ .reg .pred adds; setp.ne.b32 adds, %69, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e4m3 " KV_SUM_NAMES "{%64, %65, %66, %67}, %68, adds, 1, 1; }"
      : KV_SUMS(d)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(operand_descriptor(operand, step * 32)), "n"(int(kAdds)));
}
// Converts two half2 to four E4M3 bytes, those of `low` first.
KV_DEVICE u32 e4m3x4_from_f16x4(u32 low, u32 high) {
  u32 r;
  asm("{ .reg .b16 low, high; cvt.rn.satfinite.e4m3x2.f16x2 low, %1; cvt.rn.satfinite.e4m3x2.f16x2 high, %2;\n"
      "mov.b32 %0, {low, high}; }"
      : "=r"(r)
      : "r"(low), "r"(high));
  return r;
}
KV_DEVICE void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
KV_DEVICE void wgmma_end(float (&d)[64]) {
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  KV_UNROLL
  for (int i = 0; i < 64; ++i) asm volatile("" : "+f"(d[i])::"memory");  // no reader of d moves above the wait
}

// The warpgroups of a block multiply one after the other. Left to themselves they share the tensor cores evenly, so all
// finish at the same time and then leave the cores idle together. The barrier of a group waits for the group before it
// (9.7.13.1). Groups go in order, equally often. The order is for speed only: on the CPU these functions order
// nothing.
template <int kGroups>
KV_DEVICE void open_warpgroup_order() {  // the last group lets the first group go first
  if (warp() / 4 == kGroups - 1) asm volatile("bar.arrive 1, 256;" ::: "memory");
}
KV_DEVICE void await_warpgroup_order() { asm volatile("bar.sync %0, 256;" ::"r"(1 + warp() / 4) : "memory"); }
template <int kGroups>
KV_DEVICE void pass_warpgroup_order() {
  asm volatile("bar.arrive %0, 256;" ::"r"(1 + (warp() / 4 + 1) % kGroups) : "memory");
}

// Loads four 8x8 matrices of halves from shared memory as one first operand (9.7.14.5.15). Lanes 8 m .. 8 m + 7 give
// the addresses of the rows of matrix m. Lane 4 g + c gets row g, columns 2c and 2c + 1, of each matrix.
KV_DEVICE void load_matrices(u32 (&a)[4], SharedAddress row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3])
               : "r"(staged_address(row))
               : "memory");
}

// d[16x8] += a[16x8] b[8x8], the first half of mma_16x8x16.
KV_DEVICE void mma_16x8x8(float (&d)[4], u32 a0, u32 a1, u32 b0) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},{%4,%5},{%6},{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a0), "r"(a1), "r"(b0));
}

}  // namespace kv
#endif
