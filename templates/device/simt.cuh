// The device layer: the names by which kernels use the hardware. A kernel is compiled as CUDA or as host C++, and each
// name that it uses has a meaning in both.
//
//   CUDA (NVRTC, nvcc)   This file gives thin names to instructions and intrinsics.
//   host C++             device/cpu.hpp gives the same names their CPU meaning, and runs a block as cooperative fibres,
//                        lane by lane.
//
// The other files of this folder add names that only some kernels use. Section numbers are those of the PTX ISA manual
// 9.0.
// SPDX-License-Identifier: MIT
#pragma once
#include "args/types.cuh"

#if defined(__CUDACC__)
#define KV_DEVICE __device__ __forceinline__
#define KV_KERNEL extern "C" __global__ void
#define KV_CONSTANT __constant__ const
#define KV_TABLE \
  __device__ const  // a table in global memory: too large for constant memory, or read at 32 places at once
#define KV_PARAM const __grid_constant__
#define KV_LAUNCH_BOUNDS(threads, blocks) __launch_bounds__(threads, blocks)
#define KV_UNROLL _Pragma("unroll")
#define KV_NO_UNROLL _Pragma("unroll 1")
#define KV_PRAGMA(text) _Pragma(#text)
#define KV_UNROLL_BY(n) KV_PRAGMA(unroll n)

namespace kv {

// ---- lanes, warps, blocks ----
KV_DEVICE int thread() { return threadIdx.x; }
KV_DEVICE int lane() { return threadIdx.x & 31; }
KV_DEVICE int warp() { return threadIdx.x >> 5; }
KV_DEVICE int block_x() { return blockIdx.x; }
KV_DEVICE int block_y() { return blockIdx.y; }
KV_DEVICE int block_z() { return blockIdx.z; }

// ---- collectives ----
KV_DEVICE void sync_block() { __syncthreads(); }
KV_DEVICE void sync_warp() { __syncwarp(); }
// A team is kWarps warps, the first of which has a multiple of kWarps as its number. Each team has a barrier of its own
// (9.7.13.1), at which all its warps arrive. any_of_team also says whether any lane of the team votes.
template <int kWarps>
KV_DEVICE void sync_team() {
  asm volatile("bar.sync %0, %1;" ::"r"(1 + warp() / kWarps), "n"(kWarps * 32) : "memory");
}
template <int kWarps>
KV_DEVICE bool any_of_team(bool v) {
  u32 any;
  asm volatile(
      "{ .reg .pred mine, any; setp.ne.u32 mine, %3, 0; bar.red.or.pred any, %1, %2, mine; selp.u32 %0, 1, 0, any; }"
      : "=r"(any)
      : "r"(1 + warp() / kWarps), "n"(kWarps * 32), "r"(u32(v))
      : "memory");
  return any != 0;
}
KV_DEVICE float shfl_xor(float v, int mask) { return __shfl_xor_sync(0xffffffffu, v, mask); }
KV_DEVICE u32 shfl_xor(u32 v, int mask) { return __shfl_xor_sync(0xffffffffu, v, mask); }
KV_DEVICE u32 shfl(u32 v, int from) { return __shfl_sync(0xffffffffu, v, from); }
KV_DEVICE float shfl(float v, int from) { return __shfl_sync(0xffffffffu, v, from); }
// The largest number of the lanes of a warp.
KV_DEVICE u32 largest_of_warp(u32 v) {
#if __CUDA_ARCH__ >= 800
  return __reduce_max_sync(0xffffffffu, v);
#else
  KV_UNROLL
  for (int mask = 16; mask > 0; mask >>= 1) {
    const u32 other = shfl_xor(v, mask);
    v = other > v ? other : v;
  }
  return v;
#endif
}
KV_DEVICE bool any(bool v) { return __any_sync(0xffffffffu, v); }
KV_DEVICE u32 ballot(bool v) { return __ballot_sync(0xffffffffu, v); }
// Makes a condition warp-uniform that is the same in all lanes of a warp. The assembler believes only votes: behind a
// branch or a loop that may part a warp it writes every shuffle twice. Loops that run often do without, as a vote keeps
// others from being hoisted.
KV_DEVICE bool warp_uniform(bool v) { return any(v); }

// Pins an address in a register: it is computed here, once, and not again at each use.
KV_DEVICE const u8* pin_register(const u8* address) {
  asm volatile("" : "+l"(address));
  return address;
}
// Keeps a value that the assembler would rather compute anew, because it sees that lanes and constants are all it
// takes.
KV_DEVICE u32 hide_from_optimizer(u32 v) { return __shfl_xor_sync(0xffffffffu, v, 0); }
KV_DEVICE u32 multiply_high(u32 a, u32 b) { return __umulhi(a, b); }  // the upper word of the product
// Traps unless a promise of the host is kept that the host could not check.
KV_DEVICE void device_assert(bool condition) {
  if (!condition) __trap();
}

// ---- numbers ----

// The *_rn forms are never contracted to fused multiply-adds. They are for sums and products whose last bit decides a
// stored byte.
KV_DEVICE float fma_rn(float a, float b, float c) { return __fmaf_rn(a, b, c); }
KV_DEVICE float mul_rn(float a, float b) { return __fmul_rn(a, b); }
KV_DEVICE float add_rn(float a, float b) { return __fadd_rn(a, b); }
KV_DEVICE float add_rz(float a, float b) { return __fadd_rz(a, b); }  // rounds towards zero
KV_DEVICE float div_rn(float a, float b) { return __fdiv_rn(a, b); }
KV_DEVICE float sqrt_rn(float a) { return __fsqrt_rn(a); }
KV_DEVICE float absolute(float a) { return __int_as_float(__float_as_int(a) & 0x7fffffff); }
// 1 / sqrt(a) with an error of about 2^-22; 0 gives infinity.
KV_DEVICE float rsqrt_fast(float a) {
  float r;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(a));
  return r;
}
KV_DEVICE int round_to_int(float a) { return __float2int_rn(a); }
KV_DEVICE float larger(float a, float b) { return fmaxf(a, b); }  // of a number and a NaN, the number
KV_DEVICE u32 larger(u32 a, u32 b) { return a > b ? a : b; }
KV_DEVICE float smaller(float a, float b) { return fminf(a, b); }
KV_DEVICE int count_bits(u32 a) { return __popc(a); }
KV_DEVICE u32 bits_of(float a) { return __float_as_uint(a); }
// The bits of a result of arithmetic as an integer: a NaN, which has no sign then, is above all numbers.
KV_DEVICE int ordered_bits(float a) { return __float_as_int(a); }
KV_DEVICE float float_of(u32 a) { return __uint_as_float(a); }
KV_DEVICE float exp2_fast(float x) {  // 9.7.3.20: error 2 ulp
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
KV_DEVICE float f32_from_f16(u32 h) {
  float f;
  asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(u16(h)));
  return f;
}
KV_DEVICE u16 f16_from_f32(float f) {
  u16 h;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(f));
  return h;
}
KV_DEVICE float f32_from_bf16(u32 h) { return __uint_as_float(h << 16); }
KV_DEVICE u16 bf16_from_f32(float f) {  // round to nearest even in integers: sm_75 has no conversion
  const u32 b = __float_as_uint(f);
  if ((b & 0x7fffffffu) > 0x7f800000u) return u16(b >> 16 | 0x40);
  return u16((b + 0x7fffu + (b >> 16 & 1)) >> 16);
}

// Loads 16 bytes of global memory at once, from an address aligned to 16.
KV_DEVICE void load_u128(u32* v, const void* from) {
  const uint4 words = *static_cast<const uint4*>(from);
  v[0] = words.x, v[1] = words.y, v[2] = words.z, v[3] = words.w;
}
// The same for bytes that are read once: they take no place in the L1, and the L2 fetches whole lines (9.7.9.9).
KV_DEVICE void load_once_u128(u32* v, const void* from) {
  asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
               : "l"(from));
}
KV_DEVICE void store_u128(void* to, u32 x, u32 y, u32 z, u32 w) { *static_cast<uint4*>(to) = make_uint4(x, y, z, w); }

// Packs two halves into one word, low half first.
KV_DEVICE u32 pack_f16x2(float lo, float hi) {
#if __CUDA_ARCH__ >= 800
  u32 r;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
  return r;
#else
  return u32(f16_from_f32(lo)) | u32(f16_from_f32(hi)) << 16;
#endif
}
// Packs two bfloats likewise, rounded to nearest even.
KV_DEVICE u32 pack_bf16x2(float lo, float hi) {
#if __CUDA_ARCH__ >= 800
  u32 r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
  return r;
#else
  return u32(bf16_from_f32(lo)) | u32(bf16_from_f32(hi)) << 16;
#endif
}
KV_DEVICE u32 mul_f16x2(u32 a, u32 b) {
  u32 r;
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
  return r;
}
KV_DEVICE u32 sub_f16x2(u32 a, u32 b) {
  u32 r;
  asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
  return r;
}
KV_DEVICE u32 fma_f16x2(u32 a, u32 b, u32 c) {
  u32 r;
  asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
  return r;
}
KV_DEVICE u32 larger_u16x2(u32 a, u32 b) { return __vmaxu2(a, b); }
// The larger magnitudes of two pairs of halves. If one of two is a NaN, the result is a NaN.
KV_DEVICE u32 larger_f16x2(u32 a, u32 b) {
#if __CUDA_ARCH__ >= 800
  u32 r;
  asm("{.reg .b32 x, y; abs.f16x2 x, %1; abs.f16x2 y, %2; max.NaN.f16x2 %0, x, y;}" : "=r"(r) : "r"(a), "r"(b));
  return r;
#else
  return larger_u16x2(a & 0x7fff7fffu, b & 0x7fff7fffu);
#endif
}
// Products of two pairs of bf16, rounded to nearest even.
KV_DEVICE u32 mul_bf16x2(u32 a, u32 b) {
#if __CUDA_ARCH__ >= 800
  u32 r;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(0x80008000u));
  return r;
#else
  return pack_bf16x2(f32_from_bf16(a & 0xffffu) * f32_from_bf16(b & 0xffffu),
                     f32_from_bf16(a >> 16) * f32_from_bf16(b >> 16));
#endif
}
// The larger magnitudes of two pairs of bf16, with any signs. If one of two is a NaN, the result is a NaN.
KV_DEVICE u32 larger_bf16x2(u32 a, u32 b) {
#if __CUDA_ARCH__ >= 860
  u32 r;
  asm("max.NaN.xorsign.abs.bf16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
  return r;
#elif __CUDA_ARCH__ >= 800
  u32 r;
  asm("{.reg .b32 x, y; abs.bf16x2 x, %1; abs.bf16x2 y, %2; max.NaN.bf16x2 %0, x, y;}" : "=r"(r) : "r"(a), "r"(b));
  return r;
#else
  return larger_u16x2(a & 0x7fff7fffu, b & 0x7fff7fffu);
#endif
}
// Converts four E4M3FN bytes to two pairs of halves, exactly (9.7.9.21).
KV_DEVICE void f16x4_from_e4m3x4(u32* h, u32 bytes) {
#if __CUDA_ARCH__ >= 890
  asm("{.reg .b16 l, h; mov.b32 {l, h}, %2; cvt.rn.f16x2.e4m3x2 %0, l; cvt.rn.f16x2.e4m3x2 %1, h;}"
      : "=r"(h[0]), "=r"(h[1])
      : "r"(bytes));
#else  // the fields moved to a half's place, times 2^8; 0x7f becomes NaN
  KV_UNROLL
  for (int i = 0; i < 2; ++i) {
    const u32 spread = __byte_perm(bytes, 0, i ? 0x3424 : 0x1404), magnitude = spread >> 1 & 0x3f803f80u;
    const u32 nans = ((magnitude + 0x00800080u) >> 14 & 0x00010001u) * 0x7e00u;
    h[i] = mul_f16x2(magnitude, 0x5c005c00u) | nans | (spread & 0x80008000u);
  }
#endif
}

// Converts to the nearest E4M3FN number, halves to even. Large numbers saturate, and any NaN becomes 0x7F (9.7.9.21).
// On machines without the instruction formats/minifloat.cuh computes the same.
#if __CUDA_ARCH__ >= 890
constexpr bool kConvertsToE4m3 = true;
KV_DEVICE u32 convert_to_e4m3(float f) {
  u16 r;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(r) : "f"(0.f), "f"(f));
  return r;
}
#else
constexpr bool kConvertsToE4m3 = false;
KV_DEVICE u32 convert_to_e4m3(float) { return 0; }
#endif

// ---- bytes and bits ----

// Byte i of the result is byte (selector >> 4i & 7) of {a, b} (9.7.8.7).
KV_DEVICE u32 permute(u32 a, u32 b, u32 selector) { return __byte_perm(a, b, selector); }
// select_bytes is the same for a selector whose lower four nibbles are 7 at most, which is not checked. select_signs
// takes nibbles that are all above 7: each byte of the result is the sign of byte (nibble - 8), 0x00 or 0xff.
KV_DEVICE u32 select_bytes(u32 a, u32 b, u32 selector) {
  u32 r;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(selector));
  return r;
}
KV_DEVICE u32 select_signs(u32 a, u32 b, u32 selector) { return select_bytes(a, b, selector); }
// Takes bits of a where mask is set, and bits of b elsewhere (9.7.8.6). This is one instruction, which the compiler
// does not find if both parts are masked.
KV_DEVICE u32 select_bits(u32 mask, u32 a, u32 b) {
  u32 r;
  asm("lop3.b32 %0, %1, %2, %3, 0xCA;" : "=r"(r) : "r"(mask), "r"(a), "r"(b));
  return r;
}
// The sum of the products of four unsigned bytes, plus c, computed by the pipe of the multiplications (9.7.1.23). NVRTC
// before 12.3 declares __dp4a and does not define it.
KV_DEVICE u32 dot_bytes(u32 a, u32 b, u32 c) {
  u32 r;
  asm("dp4a.u32.u32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
  return r;
}
// The lower word of the 64-bit pair {lo, hi} >> shift; shift is below 32.
KV_DEVICE u32 shift_right(u32 lo, u32 hi, u32 shift) { return __funnelshift_r(lo, hi, shift); }

// ---- tensor cores (9.7.14.5) ----

// d[16x8] += a[16x16] b[16x8] of halves. With lane = 4 g + c:
//   a[0] = A[g][2c, 2c+1]   a[1] = A[g+8][2c, 2c+1]   a[2] = A[g][2c+8, 2c+9]   a[3] = A[g+8][2c+8, 2c+9]
//   b[0] = B[2c, 2c+1][g]   b[1] = B[2c+8, 2c+9][g]   d = D[g][2c], D[g][2c+1], D[g+8][2c], D[g+8][2c+1]
KV_DEVICE void mma_16x8x16(float (&d)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
#if __CUDA_ARCH__ >= 800
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
#else  // sm_75 has the k8 form only
  asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},{%4,%5},{%6},{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a0), "r"(a1), "r"(b0));
  asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},{%4,%5},{%6},{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a2), "r"(a3), "r"(b1));
#endif
}

// d = a b: the same product without sums to add to.
KV_DEVICE void mma_16x8x16_first(float (&d)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
#if __CUDA_ARCH__ >= 800
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%10,%10,%10,%10};"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1), "f"(0.f));
#else
  d[0] = d[1] = d[2] = d[3] = 0.f;
  mma_16x8x16(d, a0, a1, a2, a3, b0, b1);
#endif
}

// d[16x8] += a[16x16] b[16x8] of bfloats, placed as the halves of mma_16x8x16 are.
KV_DEVICE void mma_16x8x16_bf16(float (&d)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
#if __CUDA_ARCH__ >= 800
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
#endif  // planners do not use it on sm_75
}

// d[16x8] += a[16x32] b[32x8] of integers: b has signed bytes, a signed or unsigned ones. With lane = 4 g + c:
//   a[0] = A[g][4c .. 4c+3]   a[1] = A[g+8][4c ..]   a[2] = A[g][16+4c ..]   a[3] = A[g+8][16+4c ..]
//   b[0] = B[4c .. 4c+3][g]   b[1] = B[16+4c ..][g]   d as above
template <bool kIsUnsigned>
KV_DEVICE void mma_16x8x32(int (&d)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
#if __CUDA_ARCH__ >= 800
  if constexpr (kIsUnsigned)
    asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
        : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  else
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
        : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
#endif  // planners do not use it on sm_75
}

// Transposes an 8x8 matrix of halves spread over the warp: lane 4 g + c holds row g, columns 2c and 2c+1
// (9.7.14.5.17).
KV_DEVICE u32 transpose_8x8(u32 v) {
  u32 r;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(r) : "r"(v));
  return r;
}

// ---- shared memory ----

// Shared memory is addressed by an offset into the block's dynamic part. Vector forms need alignment to their size.
//
// On Hopper and later the compiler adds the block's rank in its cluster to the address of a shared array: an addition
// at each use, or a register kept for it. Kernels here run without clusters, and then the dynamic part begins right
// after the KiB that the system reserves. check_shared() traps if that is ever otherwise; each kernel that has such
// memory calls it first.
using SharedAddress = u32;
constexpr u32 kSharedStart = 1024;
#if __CUDA_ARCH__ >= 900
KV_DEVICE u8* shared_bytes() { return static_cast<u8*>(__cvta_shared_to_generic(kSharedStart)); }
KV_DEVICE void check_shared() {
  extern __shared__ __align__(128) u8 kv_shared[];
  device_assert(u32(__cvta_generic_to_shared(kv_shared)) == kSharedStart);
}
#else
KV_DEVICE u8* shared_bytes() {
  extern __shared__ __align__(128) u8 kv_shared[];
  return kv_shared;
}
KV_DEVICE void check_shared() {}
#endif
template <class Word>
KV_DEVICE Word load_shared(SharedAddress a) {
  return *reinterpret_cast<const Word*>(shared_bytes() + a);
}
struct alignas(8) Words2 {
  u32 x, y;
};
struct alignas(16) Words4 {
  u32 x, y, z, w;
};
KV_DEVICE u32 load_shared_u8(SharedAddress a) { return load_shared<u8>(a); }
KV_DEVICE u32 load_shared_u16(SharedAddress a) { return load_shared<u16>(a); }
KV_DEVICE u32 load_shared_u32(SharedAddress a) { return load_shared<u32>(a); }
KV_DEVICE void load_shared_u64(u32* v, SharedAddress a) {
  const Words2 words = load_shared<Words2>(a);
  v[0] = words.x, v[1] = words.y;
}
KV_DEVICE void load_shared_u128(u32* v, SharedAddress a) {
  const Words4 words = load_shared<Words4>(a);
  v[0] = words.x, v[1] = words.y, v[2] = words.z, v[3] = words.w;
}
KV_DEVICE void store_shared_u8(SharedAddress a, u32 v) { shared_bytes()[a] = u8(v); }
KV_DEVICE void store_shared_u16(SharedAddress a, u32 v) { *reinterpret_cast<u16*>(shared_bytes() + a) = u16(v); }
KV_DEVICE void store_shared_u32(SharedAddress a, u32 v) { *reinterpret_cast<u32*>(shared_bytes() + a) = v; }
KV_DEVICE void store_shared_u128(SharedAddress a, u32 x, u32 y, u32 z, u32 w) {
  *reinterpret_cast<Words4*>(shared_bytes() + a) = {x, y, z, w};
}

// Reads in a loop over staged tiles. load_table and load_table_u64 read a read-only table at kAt + offset. The compiler
// may move them; their address depends on staged data, so they stay behind it. load_staged_* read what asynchronous
// copies brought, and stay in their order.
#if __CUDA_ARCH__ >= 900
KV_DEVICE u32 staged_address(SharedAddress a) { return kSharedStart + a; }
template <int kAt>
KV_DEVICE u32 load_table(u32 offset) {
  u32 v;
  asm("ld.shared.b32 %0, [%1+%2];" : "=r"(v) : "r"(offset), "n"(kSharedStart + kAt));
  return v;
}
template <int kAt>
KV_DEVICE void load_table_u64(u32* v, u32 offset) {
  asm("ld.shared.v2.b32 {%0,%1}, [%2+%3];" : "=r"(v[0]), "=r"(v[1]) : "r"(offset), "n"(kSharedStart + kAt));
}
#else
KV_DEVICE u32 staged_address(SharedAddress a) { return u32(__cvta_generic_to_shared(shared_bytes())) + a; }
template <int kAt>
KV_DEVICE u32 load_table(u32 offset) {
  return load_shared_u32(kAt + offset);
}
template <int kAt>
KV_DEVICE void load_table_u64(u32* v, u32 offset) {
  load_shared_u64(v, kAt + offset);
}
#endif
KV_DEVICE u32 load_staged_u8(SharedAddress a) {
  u32 v;
  asm volatile("ld.shared.u8 %0, [%1];" : "=r"(v) : "r"(staged_address(a)));
  return v;
}
KV_DEVICE u32 load_staged_u16(SharedAddress a) {
  u16 v;
  asm volatile("ld.shared.u16 %0, [%1];" : "=h"(v) : "r"(staged_address(a)));
  return v;
}
KV_DEVICE u32 load_staged_u32(SharedAddress a) {
  u32 v;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(staged_address(a)));
  return v;
}
KV_DEVICE void load_staged_u64(u32* v, SharedAddress a) {
  asm volatile("ld.shared.v2.u32 {%0,%1}, [%2];" : "=r"(v[0]), "=r"(v[1]) : "r"(staged_address(a)));
}
KV_DEVICE void load_staged_u128(u32* v, SharedAddress a) {
  asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
               : "r"(staged_address(a)));
}

// Loads four 8x8 matrices of halves, transposed (9.7.14.5.15). Lanes 8 m .. 8 m + 7 give the addresses of the rows of
// matrix m. Lane 4 g + c gets rows 2c and 2c + 1 of column g of each matrix.
KV_DEVICE void load_matrices_transposed(u32 (&b)[4], SharedAddress row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(b[0]), "=r"(b[1]), "=r"(b[2]), "=r"(b[3])
               : "r"(staged_address(row))
               : "memory");
}

// ---- between the blocks of a launch ----

// count_arrival counts an arrival and returns how many came before. Blocks that find an arrival counted see everything
// that its thread wrote before. With count_warp_arrival that is what the whole warp wrote. Readers must load past the
// first-level cache, which is not coherent: load_coherent_* do (8.8, 9.7.13.5).
KV_DEVICE u32 count_arrival(u32* counter) {
  u32 before;
  asm volatile("atom.add.acq_rel.gpu.global.u32 %0, [%1], 1;" : "=r"(before) : "l"(counter) : "memory");
  return before;
}
KV_DEVICE u32 count_warp_arrival(u32* counter) {
  u32 before = 0;
  __syncwarp();
  if (lane() == 0) before = count_arrival(counter);
  __syncwarp();
  return shfl(before, 0);
}
KV_DEVICE void load_coherent_u128(u32* v, const void* from) {
  asm volatile("ld.global.cg.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3]) : "l"(from));
}
KV_DEVICE u32 load_coherent_u32(const void* from) {
  u32 v;
  asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(v) : "l"(from));
  return v;
}
KV_DEVICE void load_coherent_u64(u32* v, const void* from) {
  asm volatile("ld.global.cg.v2.u32 {%0,%1}, [%2];" : "=r"(v[0]), "=r"(v[1]) : "l"(from));
}

// Makes what the thread stored to global memory reach the second-level cache. Asynchronous copies of the block read
// past the first-level cache, so they see it once a barrier has told the other threads (8.5, 9.7.13.4).
KV_DEVICE void publish_stores() { __threadfence(); }

// Brings a line of global memory to the second-level cache. Whoever writes the line meanwhile writes it there too.
KV_DEVICE void prefetch_line(const u8* at) { asm volatile("prefetch.global.L2 [%0];" ::"l"(at)); }

// ---- programmatic dependent launch (PDL, 9.7.13.13) ----

// A kernel may be launched before the previous kernel of its stream has ended. pdl_wait waits until that
// has ended, after which its writes are seen. pdl_trigger lets the next kernel be launched. Before sm_90 launches
// do not overlap, and both do nothing.
KV_DEVICE void pdl_wait() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
KV_DEVICE void pdl_trigger() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

// ---- asynchronous copies to shared memory (9.7.9.25.3) ----

// Copies kBytes (4, 8 or 16) bytes; both addresses are aligned to kBytes. Bytes past `valid` become zero and are not
// read. copy_commit closes a group of copies. copy_wait<n> waits, for this lane, until at most n groups are still under
// way. If kKeepsLine is set, the line stays in the first-level cache a while, for copies of its other bytes. sm_75 has
// no such instruction: there a copy happens at once.
template <int kBytes, bool kKeepsLine = false>
KV_DEVICE void copy_async(SharedAddress to, const u8* from, int valid) {
#if __CUDA_ARCH__ >= 800
  const u32 target = staged_address(to);
  if constexpr (kBytes == 16 && kKeepsLine)
    asm volatile("cp.async.ca.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(target), "l"(from), "r"(valid)
                 : "memory");
  else if constexpr (kBytes == 16)
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(target), "l"(from), "r"(valid)
                 : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %3, %2;" ::"r"(target), "l"(from), "r"(valid), "n"(kBytes)
                 : "memory");
#else
  struct alignas(kBytes) Chunk {
    u32 word[kBytes / 4];
  };
  Chunk chunk = {};
  // Not ==: of "clamped to 16, then equal to 16", ptxas 13.0 makes one VIMNMX.RELU for sm_90 and later, whose predicate
  // also holds for sizes that were below 0 before they were clamped.
  if (valid >= kBytes)
    chunk = *reinterpret_cast<const Chunk*>(from);
  else
    for (int i = 0; i < kBytes / 2; ++i)  // rows are whole halves
      if (2 * i < valid) chunk.word[i / 2] |= u32(reinterpret_cast<const u16*>(from)[i]) << 16 * (i % 2);
  for (int i = 0; i < kBytes / 4; ++i) store_shared_u32(to + 4 * i, chunk.word[i]);
#endif
}
KV_DEVICE void copy_commit() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
template <int kGroupsLeft>
KV_DEVICE void copy_wait() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(kGroupsLeft) : "memory");
#endif
}

}  // namespace kv
#else
#include "device/cpu.hpp"
#endif
