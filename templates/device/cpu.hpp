// The device layer on the CPU: the meaning of the names of device/simt.cuh, and of the files that add to it, when a
// kernel is compiled as host C++.
//
// Each lane of a block is a fibre, and all fibres run on one OS thread; runtime/device/cpu/block_scheduler.cpp
// schedules them. A fibre runs until a collective. A warp or a block is released only when all its live lanes wait at
// the SAME source line, so a divergent barrier ends the launch with an error that names it. Shared memory holds NaN
// patterns before every block. Asynchronous copies land only when they are waited for, and so do products of wgmma.
//
// This file includes nothing, so that kernels compile in well under a second. The host binds itself by kv_cpu_bind().
// SPDX-License-Identifier: MIT
#pragma once

#define KV_DEVICE inline
#define KV_KERNEL extern "C" void
#define KV_CONSTANT static const
#define KV_TABLE static const
#define KV_PARAM const
#define KV_LAUNCH_BOUNDS(threads, blocks)
#define KV_UNROLL _Pragma("GCC unroll 64")
#define KV_NO_UNROLL _Pragma("GCC unroll 1")
#define KV_UNROLL_BY(n)
#define KV_SITE const char *file = __builtin_FILE(), int line = __builtin_LINE()

// Functions that CUDA has without an include. Hooks may call them (generator/spec/hook_words.cpp).
extern "C" {
float fabsf(float) noexcept, floorf(float) noexcept, ceilf(float) noexcept, truncf(float) noexcept;
float rintf(float) noexcept, sqrtf(float) noexcept, cbrtf(float) noexcept;
float expf(float) noexcept, exp2f(float) noexcept, expm1f(float) noexcept;
float logf(float) noexcept, log2f(float) noexcept, log10f(float) noexcept, log1pf(float) noexcept;
float sinf(float) noexcept, cosf(float) noexcept, tanf(float) noexcept;
float asinf(float) noexcept, acosf(float) noexcept, atanf(float) noexcept;
float sinhf(float) noexcept, coshf(float) noexcept, tanhf(float) noexcept;
float erff(float) noexcept, erfcf(float) noexcept;
float fminf(float, float) noexcept, fmaxf(float, float) noexcept, powf(float, float) noexcept;
float fmodf(float, float) noexcept, atan2f(float, float) noexcept, fmaf(float, float, float) noexcept;
inline float rsqrtf(float x) noexcept { return 1.f / sqrtf(x); }  // few libraries of C have it
}

namespace kv::cpu {

constexpr int kSlotWords = 16;     // words that a lane can show to its warp in one collective
constexpr int kMostProducts = 80;  // of wgmma that a lane has under way

// A product of wgmma that is under way. It happens when it is waited for, and reads its operands then: an operand in
// shared memory, or an array of registers, that is overwritten too early gives another sum.
struct Product {
  void (*multiply)(const Product&);
  float* sums;
  const unsigned* words;  // registers of the first operand; null: `own` has them, or they are in shared memory
  unsigned own[4], rows, operand;
  int step, group;
  const char* file;
  int line;
};

// A lane as the scheduler shows it to the kernel. Each lane has its own.
struct Lane {
  int thread, threads;  // the lane's number in its block; lanes of the block
  int block_x, block_y, block_z;
  int grid_x, grid_y, grid_z;
  unsigned char* shared;                     // shared memory of the block
  unsigned (*slots)[32][kSlotWords];         // words that lanes of this warp show: two sets, used in turns
  int parity;                                // the set that the next collective uses
  void* copies;                              // the lane's queue of asynchronous copies
  Product products[kMostProducts] = {};      // under way, the oldest first
  int awaited = 0;                           // at the tensor cores that the lane has awaited
  int product_count = 0, product_group = 0;  // group: of those that are not committed yet
};

enum class Wait : int { warp = 1, block = 2 };

// The functions that the host implements. file and line are the place in the kernel.
struct Host {
  Lane** self;                                          // the running lane
  void (*wait)(Wait what, const char* file, int line);  // runs other lanes until the group is released
  // Waits for a team of `warps` warps, the first of which has a multiple of that as its number. Says whether any lane
  // of the team votes.
  bool (*vote)(int warps, bool mine, const char* file, int line);
  // Queues a copy, of which bytes past `valid` become zero.
  void (*copy_async)(void* to, const void* from, int bytes, int valid);
  void (*copy_commit)();
  void (*copy_wait)(int groups_left);  // lands all but the newest `groups_left` groups
  // Barriers of bulk copies (device/bulk_copy.cuh), by their place in shared memory.
  void (*open_barrier)(void* at, unsigned arrivals), (*close_barrier)(void* at), (*arrive)(void* at, unsigned bytes);
  void (*wait_phase)(void* barrier, unsigned parity, const char* file, int line);
  void* (*named_barrier)(int number, unsigned arrivals);  // one of the block's own, open since its first use
  void (*copy_bulk)(void* to, const void* from, unsigned bytes, void* barrier);
  // Ends the launch unless all lanes of the warp say the same there. No lane waits for it.
  void (*agree)(bool mine, const char* file, int line);
  void (*refuse)(const char* file, int line);  // ends the launch: the kernel found a promise broken
};

inline Host host;
inline Lane& self() { return **host.self; }

}  // namespace kv::cpu

// The host calls this before it runs a kernel.
extern "C" __attribute__((visibility("default"), used)) inline void kv_cpu_bind(const kv::cpu::Host* host) {
  kv::cpu::host = *host;
}

namespace kv {

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using i64 = long long;

inline int thread() { return cpu::self().thread; }
inline int lane() { return thread() & 31; }
inline int warp() { return thread() >> 5; }
inline int block_x() { return cpu::self().block_x; }
inline int block_y() { return cpu::self().block_y; }
inline int block_z() { return cpu::self().block_z; }

namespace cpu {
// The exchange behind every collective. Each lane shows words to its warp and waits. It may then read the words of all
// lanes until its next but one collective: two sets of slots alternate, so one barrier is enough.
using Slots = unsigned (*)[kSlotWords];
template <int kWords>
inline Slots show(const u32 (&mine)[kWords], const char* file, int line) {
  static_assert(kWords <= kSlotWords, "slots are too small");
  Lane& me = self();
  Slots slots = me.slots[me.parity];
  me.parity ^= 1;
  for (int i = 0; i < kWords; ++i) slots[me.thread & 31][i] = mine[i];
  host.wait(Wait::warp, file, line);
  return slots;
}
}  // namespace cpu

inline void sync_block(KV_SITE) { cpu::host.wait(cpu::Wait::block, file, line); }
inline void sync_warp(KV_SITE) { cpu::host.wait(cpu::Wait::warp, file, line); }
template <int kWarps>
inline void sync_team(KV_SITE) {
  (void)cpu::host.vote(kWarps, false, file, line);
}
template <int kWarps>
inline bool any_of_team(bool v, KV_SITE) {
  return cpu::host.vote(kWarps, v, file, line);
}

inline const u8* pin_register(const u8* address) { return address; }
inline u32 multiply_high(u32 a, u32 b) { return u32((unsigned long long)a * b >> 32); }
inline void device_assert(bool condition, KV_SITE) {
  if (!condition) cpu::host.refuse(file, line);
}

inline u32 bits_of(float a) { return __builtin_bit_cast(u32, a); }
inline int ordered_bits(float a) { return a == a ? __builtin_bit_cast(int, a) : 0x7fffffff; }
inline float float_of(u32 a) { return __builtin_bit_cast(float, a); }

inline u32 shfl(u32 v, int from, KV_SITE) { return cpu::show<1>({v}, file, line)[from & 31][0]; }
inline u32 shfl_xor(u32 v, int mask, KV_SITE) { return cpu::show<1>({v}, file, line)[(lane() ^ mask) & 31][0]; }
inline float shfl(float v, int from, KV_SITE) { return float_of(shfl(bits_of(v), from, file, line)); }
inline float shfl_xor(float v, int mask, KV_SITE) { return float_of(shfl_xor(bits_of(v), mask, file, line)); }
inline u32 ballot(bool v, KV_SITE) {
  const cpu::Slots slots = cpu::show<1>({u32(v)}, file, line);
  u32 r = 0;
  for (int i = 0; i < 32; ++i) r |= slots[i][0] << i;
  return r;
}
inline u32 largest_of_warp(u32 v, KV_SITE) {
  const cpu::Slots slots = cpu::show<1>({v}, file, line);
  u32 r = 0;
  for (int i = 0; i < 32; ++i) r = slots[i][0] > r ? slots[i][0] : r;
  return r;
}
inline bool any(bool v, KV_SITE) { return ballot(v, file, line) != 0; }
// No lane waits here. The vote of a GPU orders no memory, so a wait would hide that a kernel lacks one behind the vote.
inline bool warp_uniform(bool v, KV_SITE) {
  cpu::host.agree(v, file, line);
  return v;
}

inline float fma_rn(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline float mul_rn(float a, float b) { return a * b; }  // not contracted: the host compiler gets -ffp-contract=off
inline float add_rn(float a, float b) { return a + b; }
inline float add_rz(float a, float b) {
  const double sum = double(a) + b;
  const float near = float(sum);
  return __builtin_fabs(double(near)) > __builtin_fabs(sum) ? float_of(bits_of(near) - 1) : near;
}
constexpr bool kConvertsToE4m3 = false;
inline u32 convert_to_e4m3(float) { return 0; }
inline float div_rn(float a, float b) { return a / b; }
inline float sqrt_rn(float a) { return __builtin_sqrtf(a); }
inline float absolute(float a) { return __builtin_fabsf(a); }
// Operands and results of the *_fast functions below 2^-126 are zeros of the same sign (.ftz).
inline float flushed(float a) { return absolute(a) < 0x1p-126f ? float_of(bits_of(a) & 0x80000000u) : a; }
inline float rsqrt_fast(float a) { return 1.f / __builtin_sqrtf(flushed(a)); }
inline int round_to_int(float a) {  // NaN gives 0, and what is beyond 32 bits the nearest integer
  if (a != a) return 0;
  return a >= 0x1p31f ? 0x7fffffff : a < -0x1p31f ? -0x7fffffff - 1 : int(__builtin_rintf(a));
}
inline float larger(float a, float b) { return __builtin_fmaxf(a, b); }
inline u32 larger(u32 a, u32 b) { return a > b ? a : b; }
inline float smaller(float a, float b) { return __builtin_fminf(a, b); }
inline int count_bits(u32 a) { return __builtin_popcount(a); }
inline float exp2_fast(float x) { return flushed(__builtin_exp2f(x)); }
inline float log2_fast(float x) { return __builtin_log2f(flushed(x)); }
inline float sine_fast(float x) { return __builtin_sinf(x); }
inline float cosine_fast(float x) { return __builtin_cosf(x); }
inline float reciprocal_fast(float x) { return flushed(1.f / flushed(x)); }
inline float f32_from_f16(u32 h) {
  // Shifted into place, a half is a float whose exponent is 112 too small (subnormals included).
  const float f = float_of((h & 0x7fffu) << 13) * 0x1p112f;
  const u32 magnitude = (h & 0x7c00u) == 0x7c00u ? 0x7f800000u | (h & 0x3ffu) << 13 : bits_of(f);
  return float_of(magnitude | (h & 0x8000u) << 16);
}
inline u16 f16_from_f32(float f) {  // round to nearest even
  const u32 sign = bits_of(f) >> 16 & 0x8000u, a = bits_of(f) & 0x7fffffffu;
  if (a > 0x7f800000u) return 0x7fff;                // any NaN: 9.7.9.21
  if (a >= 0x477ff000u) return u16(sign | 0x7c00u);  // from 65520 on: infinity
  // A subnormal half: the addition rounds it at its last place.
  if (a < 0x38800000u) return u16(sign | (bits_of(float_of(a) + 0.5f) - 0x3f000000u));
  return u16(sign | (((a + 0xfffu + (a >> 13 & 1)) >> 13) - (112u << 10)));
}
inline float f32_from_bf16(u32 h) { return float_of(h << 16); }
inline u16 bf16_from_f32(float f) {
  const u32 b = bits_of(f);
  if ((b & 0x7fffffffu) > 0x7f800000u) return u16(b >> 16 | 0x40);
  return u16((b + 0x7fffu + (b >> 16 & 1)) >> 16);
}

inline void load_u128(u32* v, const void* from) { __builtin_memcpy(v, from, 16); }
inline void load_once_u128(u32* v, const void* from) { load_u128(v, from); }
inline void store_u128(void* to, u32 x, u32 y, u32 z, u32 w) {
  const u32 v[4] = {x, y, z, w};
  __builtin_memcpy(to, v, 16);
}

inline u32 pack_f16x2(float lo, float hi) { return u32(f16_from_f32(lo)) | u32(f16_from_f32(hi)) << 16; }
inline u32 pack_bf16x2(float lo, float hi) {
  const auto one = [](float f) { return f == f ? u32(bf16_from_f32(f)) : 0x7fffu; };
  return one(lo) | one(hi) << 16;
}
inline u32 mul_f16x2(u32 a, u32 b) {  // a product of two halves is exact in float
  return pack_f16x2(f32_from_f16(a & 0xffff) * f32_from_f16(b & 0xffff), f32_from_f16(a >> 16) * f32_from_f16(b >> 16));
}
inline u32 sub_f16x2(u32 a, u32 b) {
  return pack_f16x2(f32_from_f16(a & 0xffff) - f32_from_f16(b & 0xffff), f32_from_f16(a >> 16) - f32_from_f16(b >> 16));
}
inline u32 fma_f16x2(u32 a, u32 b, u32 c) {  // the product is exact in float, the sum in double
  const auto one = [&](int shift) {
    const double sum = double(f32_from_f16(a >> shift & 0xffff)) * f32_from_f16(b >> shift & 0xffff) +
                       f32_from_f16(c >> shift & 0xffff);
    float nearest = float(sum);  // rounded to odd below, so that the rounding to a half sees every bit
    if (double(nearest) != sum && sum - sum == 0 && !(bits_of(nearest) & 1))
      nearest = float_of(bits_of(nearest) + ((sum > nearest) == (nearest > 0) ? 1 : -1));
    return u32(f16_from_f32(nearest));
  };
  return one(0) | one(16) << 16;
}
inline u32 larger_u16x2(u32 a, u32 b) {
  return ((a & 0xffff) > (b & 0xffff) ? a & 0xffff : b & 0xffff) | ((a >> 16) > (b >> 16) ? a >> 16 : b >> 16) << 16;
}
inline u32 larger_f16x2(u32 a, u32 b) {  // without their signs, halves order as integers do
  return larger_u16x2(a & 0x7fff7fffu, b & 0x7fff7fffu);
}
inline u32 mul_bf16x2(u32 a, u32 b) {
  return pack_bf16x2(f32_from_bf16(a & 0xffffu) * f32_from_bf16(b & 0xffffu),
                     f32_from_bf16(a >> 16) * f32_from_bf16(b >> 16));
}
inline u32 larger_bf16x2(u32 a, u32 b) { return larger_f16x2(a, b); }  // their bits order like those of halves
inline void f16x4_from_e4m3x4(u32* h, u32 bytes) {
  const auto one = [](u32 b) {
    if ((b & 0x7f) == 0x7f) return 0x7e00u | (b & 0x80) << 8;
    return u32(f16_from_f32(float_of((b & 0x7f) << 20) * 0x1p120f)) | (b & 0x80) << 8;
  };
  for (int i = 0; i < 2; ++i) h[i] = one(bytes >> 16 * i & 0xff) | one(bytes >> (16 * i + 8) & 0xff) << 16;
}

inline u32 permute(u32 a, u32 b, u32 selector) {
  const unsigned long long ab = (unsigned long long)b << 32 | a;
  u32 r = 0;
  for (int i = 0; i < 4; ++i) r |= u32(ab >> 8 * (selector >> 4 * i & 7) & 0xff) << 8 * i;
  return r;
}
inline u32 select_bytes(u32 a, u32 b, u32 selector) {
  const u32 bytes = permute(a, b, selector);
  u32 r = 0;
  for (int i = 0; i < 4; ++i) {
    const u32 byte = bytes >> 8 * i & 0xff;
    r |= (selector >> 4 * i & 8 ? (byte & 0x80 ? 0xffu : 0u) : byte) << 8 * i;
  }
  return r;
}
inline u32 select_signs(u32 a, u32 b, u32 selector) { return select_bytes(a, b, selector); }
inline u32 hide_from_optimizer(u32 v) { return v; }
inline u32 select_bits(u32 mask, u32 a, u32 b) { return (a & mask) | (b & ~mask); }
inline u32 dot_bytes(u32 a, u32 b, u32 c) {
  for (int i = 0; i < 32; i += 8) c += (a >> i & 0xff) * (b >> i & 0xff);
  return c;
}
inline u32 shift_right(u32 lo, u32 hi, u32 shift) { return u32(((unsigned long long)hi << 32 | lo) >> (shift & 31)); }

namespace cpu {
// of(bits) is the number that 16 bits of an operand stand for.
template <float (*of)(u32)>
inline void mma_16x8x16(float (&d)[4], const u32 (&words)[6], const char* file, int line) {
  u32 mine[12];  // as floats, which their owner converts once: A pairs 0..7, B pairs 8..11
  for (int i = 0; i < 12; ++i) mine[i] = bits_of(of(words[i / 2] >> 16 * (i % 2) & 0xffff));
  const cpu::Slots slots = cpu::show(mine, file, line);
  const int g = lane() >> 2, c = lane() & 3;
  for (int i = 0; i < 4; ++i) {
    const int row = g, high_row = i >> 1, column = 2 * c + (i & 1);
    float sum = 0.f;
    for (int k = 0; k < 16; ++k) {
      const int owner = (k & 7) / 2, high_k = k >> 3;
      const float a = float_of(slots[row * 4 + owner][2 * (high_row + 2 * high_k) + (k & 1)]);
      const float b = float_of(slots[column * 4 + owner][8 + 2 * high_k + (k & 1)]);
      sum += a * b;
    }
    d[i] += sum;
  }
}
}  // namespace cpu
inline void mma_16x8x16(float (&d)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1, KV_SITE) {
  cpu::mma_16x8x16<f32_from_f16>(d, {a0, a1, a2, a3, b0, b1}, file, line);
}
inline void mma_16x8x16_bf16(float (&d)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1, KV_SITE) {
  cpu::mma_16x8x16<f32_from_bf16>(d, {a0, a1, a2, a3, b0, b1}, file, line);
}

inline void mma_16x8x16_first(float (&d)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1, KV_SITE) {
  d[0] = d[1] = d[2] = d[3] = 0.f;
  mma_16x8x16(d, a0, a1, a2, a3, b0, b1, file, line);
}

template <bool kIsUnsigned>
inline void mma_16x8x32(int (&d)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1, KV_SITE) {
  const cpu::Slots slots = cpu::show<6>({a0, a1, a2, a3, b0, b1}, file, line);
  const int g = lane() >> 2, c = lane() & 3;
  const auto byte = [](u32 word, int i) { return int((signed char)(word >> 8 * i & 0xff)); };
  for (int i = 0; i < 4; ++i) {
    const int high_row = i >> 1, column = 2 * c + (i & 1);
    for (int k = 0; k < 32; ++k) {
      const int owner = (k & 15) / 4, high_k = k >> 4;
      const int a = byte(slots[g * 4 + owner][high_row + 2 * high_k], k & 3);
      d[i] += (kIsUnsigned ? a & 0xff : a) * byte(slots[column * 4 + owner][4 + high_k], k & 3);
    }
  }
}

inline u32 transpose_8x8(u32 v, KV_SITE) {
  const cpu::Slots slots = cpu::show<1>({v}, file, line);
  const int g = lane() >> 2, c = lane() & 3;
  const auto at = [&](int row, int column) { return slots[row * 4 + column / 2][0] >> 16 * (column & 1) & 0xffff; };
  return at(2 * c, g) | at(2 * c + 1, g) << 16;
}

using SharedAddress = u32;
inline u8* shared_bytes() { return cpu::self().shared; }
inline u32 load_shared_u8(SharedAddress a) { return shared_bytes()[a]; }
template <class Word>
inline u32 load_shared_as(SharedAddress a) {
  Word v;
  __builtin_memcpy(&v, shared_bytes() + a, sizeof v);
  return v;
}
inline u32 load_shared_u16(SharedAddress a) { return load_shared_as<u16>(a); }
inline u32 load_shared_u32(SharedAddress a) { return load_shared_as<u32>(a); }
inline void load_shared_u64(u32* v, SharedAddress a) { __builtin_memcpy(v, shared_bytes() + a, 8); }
inline void load_shared_u128(u32* v, SharedAddress a) { __builtin_memcpy(v, shared_bytes() + a, 16); }
inline void store_shared_u8(SharedAddress a, u32 v) { shared_bytes()[a] = u8(v); }
inline void store_shared_u16(SharedAddress a, u32 v) {
  const u16 half = u16(v);
  __builtin_memcpy(shared_bytes() + a, &half, 2);
}
inline void store_shared_u32(SharedAddress a, u32 v) { __builtin_memcpy(shared_bytes() + a, &v, 4); }
// Each read advances the timer by a microsecond. Cycles are counted at 2 GHz.
inline thread_local i64 device_time = 0;  // nanoseconds
inline i64 read_nanoseconds() { return device_time += 1000; }
inline i64 read_cycles() { return 2 * device_time; }
inline void store_shared_u64(SharedAddress a, u32 x, u32 y) { store_shared_u32(a, x), store_shared_u32(a + 4, y); }
inline void store_shared_u128(SharedAddress a, u32 x, u32 y, u32 z, u32 w) {
  const u32 v[4] = {x, y, z, w};
  __builtin_memcpy(shared_bytes() + a, v, 16);
}

inline void check_shared() {}
inline u32 load_staged_u8(SharedAddress a) { return load_shared_u8(a); }
inline u32 load_staged_u16(SharedAddress a) { return load_shared_u16(a); }
inline u32 load_staged_u32(SharedAddress a) { return load_shared_u32(a); }
inline void load_staged_u64(u32* v, SharedAddress a) { load_shared_u64(v, a); }
inline void load_staged_u128(u32* v, SharedAddress a) { load_shared_u128(v, a); }
template <int kAt>
inline u32 load_table(u32 offset) {
  return load_shared_u32(kAt + offset);
}
template <int kAt>
inline void load_table_u64(u32* v, u32 offset) {
  load_shared_u64(v, kAt + offset);
}

inline void load_matrices_transposed(u32 (&b)[4], SharedAddress row, KV_SITE) {
  const cpu::Slots slots = cpu::show<1>({row}, file, line);
  const int g = lane() >> 2, c = lane() & 3;
  for (int m = 0; m < 4; ++m)
    b[m] = load_shared_u16(slots[8 * m + 2 * c][0] + 2 * g) | load_shared_u16(slots[8 * m + 2 * c + 1][0] + 2 * g)
                                                                  << 16;
}

// Blocks run one after the other, and so do launches: nothing below has to wait or to publish.
inline u32 count_arrival(u32* counter) { return (*counter)++; }
inline u32 count_warp_arrival(u32* counter, KV_SITE) {
  sync_warp(file, line);
  return shfl(lane() == 0 ? count_arrival(counter) : 0, 0, file, line);
}
inline void load_coherent_u128(u32* v, const void* from) { __builtin_memcpy(v, from, 16); }
inline u32 load_coherent_u32(const void* from) { return *static_cast<const u32*>(from); }
inline void load_coherent_u64(u32* v, const void* from) { __builtin_memcpy(v, from, 8); }
inline void publish_stores() {}
inline void prefetch_line(const u8*) {}
inline void pdl_wait() {}
inline void pdl_trigger() {}

template <int kBytes, bool kKeepsLine = false>
inline void copy_async(SharedAddress to, const u8* from, int valid) {
  cpu::host.copy_async(shared_bytes() + to, from, kBytes, valid);
}
inline void copy_commit() { cpu::host.copy_commit(); }
template <int kGroupsLeft>
inline void copy_wait() {
  cpu::host.copy_wait(kGroupsLeft);
}

// ---- device/bulk_copy.cuh ----

inline void open_barrier(SharedAddress at, u32 arrivals) { cpu::host.open_barrier(shared_bytes() + at, arrivals); }
inline void close_barrier(SharedAddress at) { cpu::host.close_barrier(shared_bytes() + at); }
inline void publish_barriers() {}
inline void yield_to_copies() {}
inline void arrive(SharedAddress barrier) { cpu::host.arrive(shared_bytes() + barrier, 0); }
inline void arrive_and_announce(SharedAddress barrier, u32 bytes) { cpu::host.arrive(shared_bytes() + barrier, bytes); }
inline void wait_phase(SharedAddress barrier, u32 parity, KV_SITE) {
  cpu::host.wait_phase(shared_bytes() + barrier, parity, file, line);
}
inline void copy_bulk(SharedAddress to, const u8* from, u32 bytes, SharedAddress barrier) {
  cpu::host.copy_bulk(shared_bytes() + to, from, bytes, shared_bytes() + barrier);
}

// ---- device/wgmma.cuh ----

constexpr u32 kPanelOfOperand = 128 * 128;  // kPanelBytes of device/wgmma.cuh, which may not be included here
constexpr u32 kPanelOfRows = 64 * 128;      // kRowPanelBytes
inline void publish_operands() {}
inline void wgmma_begin() {}
namespace cpu {
inline void begin_product(const Product& product) {
  Lane& me = self();
  if (me.product_count == kMostProducts) host.refuse(product.file, product.line);
  me.products[me.product_count] = product;
  me.products[me.product_count++].group = me.product_group;
}
// Multiplies what is under way, but for the newest `groups_left` groups and what is not committed.
inline void finish_products(int groups_left) {
  Lane& me = self();
  int done = 0;
  while (done < me.product_count && me.products[done].group < me.product_group - groups_left) {
    me.products[done].multiply(me.products[done]);
    ++done;
  }
  for (int i = done; i < me.product_count; ++i) me.products[i - done] = me.products[i];
  me.product_count -= done;
}
// The lane's words of the first operand.
inline void first_operand(const Product& product, bool is_shared, u32 (&a)[4]) {
  const int g = lane() >> 2, c = lane() & 3, top = warp() % 4 * 16;
  for (int r = 0; r < 4; ++r) {
    const int row = top + g + r % 2 * 8, k = 16 * product.step + 2 * c + r / 2 * 8;
    a[r] =
        !is_shared
            ? product.words ? product.words[4 * product.step + r] : product.own[r]
            : load_shared_u32(product.rows + k / 64 * kPanelOfRows + row * 128 + ((k / 8 ^ row) & 7) * 16 + k % 8 * 2);
  }
}
// d += a b, or d = a b. of(bits) is the number that 16 bits of an operand stand for. kIsTransposed: entry (k, n) of the
// operand is where entry (n, k) else is.
template <bool kAdds, bool kIsShared, bool kIsTransposed, u32 kPanel, int kSums, float (*of)(u32)>
inline void multiply(const Product& product) {
  u32 a[4], mine[8];
  first_operand(product, kIsShared, a);
  for (int i = 0; i < 8; ++i) mine[i] = bits_of(of(a[i / 2] >> 16 * (i % 2) & 0xffff));
  const Slots slots = show(mine, product.file, product.line);
  const int g = lane() >> 2, c = lane() & 3, step = product.step;
  float rows[2][16];
  for (int i = 0; i < 32; ++i) {
    const int h = i / 16, k = i % 16;
    rows[h][k] = float_of(slots[4 * g + k % 8 / 2][2 * (h + k / 8 * 2) + k % 2]);
  }
  for (int column = 0; column < kSums / 2; ++column) {
    const int t = column / 2, i = column % 2, n = 8 * t + 2 * c + i;
    float sum[2] = {};
    for (int k = 0; k < 16; ++k) {
      const int row = kIsTransposed ? 16 * step + k : n, at_row = kIsTransposed ? n : 16 * step + k;
      const u32 at = at_row / 64 * kPanel + row * 128 + ((at_row / 8 ^ row) & 7) * 16 + at_row % 8 * 2;
      const float b = of(load_shared_u16(product.operand + at));
      for (int h = 0; h < 2; ++h) sum[h] += rows[h][k] * b;
    }
    for (int h = 0; h < 2; ++h) {
      float& d = product.sums[4 * t + 2 * h + i];
      d = kAdds ? d + sum[h] : sum[h];
    }
  }
}
template <bool kAdds, bool kIsTransposed = false, u32 kPanel = kPanelOfOperand, float (*of)(u32) = f32_from_f16,
          int kSums>
inline void begin_shared_product(float (&d)[kSums], SharedAddress rows, SharedAddress operand, int step,
                                 const char* file, int line) {
  begin_product(
      {multiply<kAdds, true, kIsTransposed, kPanel, kSums, of>, d, nullptr, {}, rows, operand, step, 0, file, line});
}
template <bool kAdds, bool kIsTransposed, int kSums>
inline void begin_register_product(float (&d)[kSums], const u32* words, SharedAddress operand, int step,
                                   const char* file, int line) {
  begin_product({multiply<kAdds, false, kIsTransposed, kPanelOfOperand, kSums, f32_from_f16>,
                 d,
                 words,
                 {},
                 0,
                 operand,
                 step,
                 0,
                 file,
                 line});
}
template <bool kAdds>
inline void multiply_e4m3(const Product& product) {
  const auto of = [](u32 byte) { return float_of((byte & 0x7f) << 20 | byte >> 7 << 31) * 0x1p120f; };
  const Slots slots = show<4>(product.own, product.file, product.line);
  const int g = lane() >> 2, c = lane() & 3;
  for (int i = 0; i < 64; ++i) {
    const int n = i / 4 * 8 + 2 * c + i % 2, high = i % 4 / 2;
    float sum = 0.f;
    for (int k = 0; k < 32; ++k) {
      const int all = 32 * product.step + k;
      const u32 b = load_shared_u8(product.operand + n * 128 + ((all / 16 ^ n) & 7) * 16 + all % 16);
      sum += of(slots[4 * g + k % 16 / 4][high + k / 16 * 2] >> 8 * (k % 4) & 0xff) * of(b);
    }
    float& d = product.sums[i];
    d = float_of(bits_of(kAdds ? d + sum : sum) & 0xfffffc00u);
  }
}
}  // namespace cpu
template <bool kAdds>
inline void wgmma_64x128x16(float (&d)[64], const u32 (&a)[4], SharedAddress operand, int step, KV_SITE) {
  cpu::begin_product({cpu::multiply<kAdds, false, false, kPanelOfOperand, 64, f32_from_f16>,
                      d,
                      nullptr,
                      {a[0], a[1], a[2], a[3]},
                      0,
                      operand,
                      step,
                      0,
                      file,
                      line});
}
template <bool kAdds>
inline void wgmma_64x128x16(float (&d)[64], SharedAddress rows, SharedAddress operand, int step, KV_SITE) {
  cpu::begin_shared_product<kAdds>(d, rows, operand, step, file, line);
}
struct BfloatRows {
  SharedAddress at;
};
template <bool kAdds>
inline void wgmma_64x128x16(float (&d)[64], BfloatRows rows, SharedAddress operand, int step, KV_SITE) {
  cpu::begin_shared_product<kAdds, false, kPanelOfOperand, f32_from_bf16>(d, rows.at, operand, step, file, line);
}
inline u32 e4m3x4_from_f16x4(u32 low, u32 high) {
  const auto one = [](u32 half) {
    const float f = f32_from_f16(half), most = f > 448 ? 448.f : f < -448 ? -448.f : f;
    const u32 b = bits_of(most * 0x1p-120f);  // its exponent and upper mantissa bits are those of E4M3
    return f != f ? 0x7fu : (((b & 0x7fffffffu) + 0x7ffffu + (b >> 20 & 1)) >> 20) | b >> 31 << 7;
  };
  return one(low & 0xffff) | one(low >> 16) << 8 | one(high & 0xffff) << 16 | one(high >> 16) << 24;
}
template <bool kAdds>
inline void wgmma_64x128x32_e4m3(float (&d)[64], const u32 (&a)[4], SharedAddress operand, int step, KV_SITE) {
  cpu::begin_product(
      {cpu::multiply_e4m3<kAdds>, d, nullptr, {a[0], a[1], a[2], a[3]}, 0, operand, step, 0, file, line});
}
inline void wgmma_commit() { ++cpu::self().product_group; }
inline u32 columns_at(SharedAddress b) { return b; }
inline u32 columns_behind(u32 columns, int bytes) { return columns + u32(bytes); }
inline void store_columns(SharedAddress a, u32 v) { store_shared_u32(a, v); }
inline u32 uniform(u32 v, KV_SITE) { return shfl(v, 0, file, line); }
// These products happen at once.
template <int kColumns, bool kIsTransposed, bool kAreBfloats = false, class Sums>
inline void wgmma_columns(const Sums& d, u32 a0, u32 a1, u32 a2, u32 a3, u32 b, bool adds, KV_SITE) {
  const u32 words[4] = {a0, a1, a2, a3};
  const auto of = [](u32 bits) { return kAreBfloats ? f32_from_bf16(bits) : f32_from_f16(bits); };
  u32 mine[8];
  for (int i = 0; i < 8; ++i) mine[i] = bits_of(of(words[i / 2] >> 16 * (i % 2) & 0xffff));
  const cpu::Slots slots = cpu::show(mine, file, line);
  const int g = lane() >> 2, c = lane() & 3;
  for (int i = 0; i < kColumns / 2; ++i) {
    const int t = i / 4, n = 2 * c + i % 2, high = i % 4 / 2;
    float sum = 0.f;
    for (int k = 0; k < 16; ++k) {
      const u32 at = b + t * 256 + k / 8 * 128 + (kIsTransposed ? k % 8 * 16 + n * 2 : n * 16 + k % 8 * 2);
      sum += float_of(slots[4 * g + k % 8 / 2][2 * (high + k / 8 * 2) + k % 2]) * of(load_shared_u16(at));
    }
    d(i) = adds ? d(i) + sum : sum;
  }
}
template <int kLeft>
inline void wgmma_wait() {
  cpu::finish_products(kLeft);
}
inline void settle(float&) {}
inline void wgmma_end(float (&)[64]) { wgmma_wait<0>(); }
template <int kGroups>
inline void open_warpgroup_order() {}
inline void await_warpgroup_order(KV_SITE) { sync_warp(file, line); }
template <int kGroups>
inline void pass_warpgroup_order() {}
inline void load_matrices(u32 (&a)[4], SharedAddress row, KV_SITE) {
  const cpu::Slots slots = cpu::show<1>({row}, file, line);
  for (int m = 0; m < 4; ++m) a[m] = load_shared_u32(slots[8 * m + (lane() >> 2)][0] + 4 * (lane() & 3));
}
inline void mma_16x8x8(float (&d)[4], u32 a0, u32 a1, u32 b0, KV_SITE) {
  mma_16x8x16(d, a0, a1, 0, 0, b0, 0, file, line);
}

// ---- device/warp_roles.cuh ----

template <int kRegisters>
inline void release_registers() {}
template <int kRegisters>
inline void request_registers() {}
// Each warpgroup has a barrier, at which the 128 lanes of the other one arrive. So a turn that nobody passes on is a
// deadlock here, too.
inline void* order_barrier(int group) { return cpu::host.named_barrier(group, 128); }
inline void pass_tensor_order(int group) { cpu::host.arrive(order_barrier(1 - group), 0); }
inline void await_tensor_order(int group, KV_SITE) {
  cpu::host.wait_phase(order_barrier(group), u32(cpu::self().awaited++) % 2, file, line);
}
inline void open_tensor_order(int group) {
  if (group == 1) pass_tensor_order(group);
}
inline void finish_before_barrier(float) {}
inline u32 add_arrival(u32* counter, u32 add) {
  const u32 before = *counter;
  *counter += add;
  return before;
}
inline u32 add_warp_arrival(u32* counter, u32 add, KV_SITE) {
  sync_warp(file, line);
  return shfl(lane() == 0 ? add_arrival(counter, add) : 0, 0, file, line);
}
inline void wgmma_64x128x16_transposed(float (&d)[64], const u32 (&p)[32], SharedAddress operand, int step, KV_SITE) {
  cpu::begin_register_product<true, true>(d, p, operand, step, file, line);
}
inline void wgmma_64x64x16_transposed(float (&d)[32], const u32 (&p)[32], SharedAddress operand, int step, KV_SITE) {
  cpu::begin_register_product<true, true>(d, p, operand, step, file, line);
}
inline void wgmma_64x256x16_transposed(float (&d)[128], const u32 (&p)[32], SharedAddress operand, int step, KV_SITE) {
  cpu::begin_register_product<true, true>(d, p, operand, step, file, line);
}
template <bool kAdds>
inline void wgmma_64x32x16(float (&d)[16], SharedAddress rows, SharedAddress columns, int step, KV_SITE) {
  cpu::begin_shared_product<kAdds, false, kPanelOfRows>(d, rows, columns, step, file, line);
}
inline void wgmma_64x256x16_transposed(float (&d)[128], SharedAddress rows, SharedAddress operand, int step, KV_SITE) {
  cpu::begin_shared_product<true, true, kPanelOfRows>(d, rows, operand, step, file, line);
}
template <int kCount>
inline void settle_sums(float (&)[kCount]) {}
inline void keep_words(u32 (&)[32]) {}

}  // namespace kv
