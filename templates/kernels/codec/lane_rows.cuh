// Dequantized rows in memory (f16, bf16 or f32): a lane loads or stores kValues neighbouring values of a row. Loads and
// stores are of 16 bytes, and rows are aligned to 16 bytes. The bulk kernels that take whole blocks a lane use this.
// SPDX-License-Identifier: MIT
#pragma once
#include "device/simt.cuh"

namespace kv {

// Element types of x. value: element i of a word of memory, as a float; word: the word of 4 / kBytes floats.
struct F16Words {
  static constexpr int kBytes = 2;
  KV_DEVICE static float value(u32 word, int i) { return f32_from_f16(word >> 16 * i & 0xffffu); }
  KV_DEVICE static u32 word(const float* values) { return pack_f16x2(values[0], values[1]); }
};
struct Bf16Words {
  static constexpr int kBytes = 2;
  KV_DEVICE static float value(u32 word, int i) { return float_of(i == 0 ? word << 16 : word & 0xffff0000u); }
  KV_DEVICE static u32 word(const float* values) { return pack_bf16x2(values[0], values[1]); }
};
struct F32Words {
  static constexpr int kBytes = 4;
  KV_DEVICE static float value(u32 word, int) { return float_of(word); }
  KV_DEVICE static u32 word(const float* values) { return bits_of(values[0]); }
};

template <class Words, int kValues>
KV_DEVICE void load_lane(const void* data, i64 from, float (&x)[kValues]) {
  constexpr int kAWord = 4 / Words::kBytes, kChunks = kValues / (4 * kAWord);
  const u8* const at = static_cast<const u8*>(data) + from * Words::kBytes;
  u32 words[kChunks][4];
  KV_UNROLL
  for (int i = 0; i < kChunks; ++i) load_u128(words[i], at + 16 * i);
  KV_UNROLL
  for (int i = 0; i < kValues; ++i) x[i] = Words::value(words[i / (4 * kAWord)][i / kAWord % 4], i % kAWord);
}

// Stores the values of all lanes of a warp. They pass through `stage` (shared memory for kValues of each lane), so that
// neighbouring lanes write neighbouring bytes. to: the element where the lane's values begin; negative: not stored.
template <class Words, int kValues>
KV_DEVICE void store_lanes(void* data, i64 to, const float (&x)[kValues], SharedAddress stage) {
  constexpr int kAWord = 4 / Words::kBytes, kChunks = kValues / (4 * kAWord);
  // Chunks of 16 bytes are exchanged, so that neither writing nor reading has bank conflicts.
  const auto place = [&](int lane, int chunk) {
    return stage + (lane * kChunks + (chunk ^ lane / (8 / kChunks) % kChunks)) * 16;
  };
  static_assert(kChunks <= 8, "a lane's values are 128 bytes at most");
  KV_UNROLL
  for (int i = 0; i < kChunks; ++i) {
    u32 words[4];
    KV_UNROLL
    for (int w = 0; w < 4; ++w) words[w] = Words::word(x + (4 * i + w) * kAWord);
    store_shared_u128(place(lane(), i), words[0], words[1], words[2], words[3]);
  }
  sync_warp();
  u8* const bytes = static_cast<u8*>(data);
  const u32 low = u32(to), high = u32(to >> 32);
  KV_UNROLL
  for (int i = 0; i < kChunks; ++i) {
    const int item = i * 32 + lane(), owner = item / kChunks, chunk = item % kChunks;
    const i64 at = i64(i64(shfl(high, owner)) << 32 | i64(shfl(low, owner)));
    u32 words[4];
    load_shared_u128(words, place(owner, chunk));
    if (at >= 0) store_u128(bytes + at * Words::kBytes + chunk * 16, words[0], words[1], words[2], words[3]);
  }
}

// The largest of 16, 4, 2 and 1 that divides all three numbers: the widest access in bytes.
KV_DEVICE constexpr int unit_of_words(int a, int b, int c) {
  int unit = 16;
  while ((a | b | c) % unit != 0) unit = unit == 16 ? 4 : unit / 2;
  return unit;
}

// store_words and load_words move kBytes bytes between words and memory. The address is a multiple of kUnit (1, 2, 4 or
// 16), and an access has kUnit bytes.
template <int kBytes, int kUnit>
KV_DEVICE void store_words(u8* to, const u32 (&words)[(kBytes + 3) / 4]) {
  KV_UNROLL
  for (int at = 0; at < kBytes; at += kUnit) {
    const int w = at / 4;
    if constexpr (kUnit == 16)
      store_u128(to + at, words[w], words[w + 1], words[w + 2], words[w + 3]);
    else if constexpr (kUnit == 4)
      *reinterpret_cast<u32*>(to + at) = words[w];
    else if constexpr (kUnit == 2)
      *reinterpret_cast<u16*>(to + at) = u16(words[w] >> at % 4 * 8);
    else
      to[at] = u8(words[w] >> at % 4 * 8);
  }
}
template <int kBytes, int kUnit>
KV_DEVICE void load_words(u32 (&words)[(kBytes + 3) / 4], const u8* from) {
  KV_UNROLL
  for (int w = 0; w < (kBytes + 3) / 4; ++w) words[w] = 0;
  KV_UNROLL
  for (int at = 0; at < kBytes; at += kUnit) {
    const int w = at / 4;
    if constexpr (kUnit == 16)
      load_u128(words + w, from + at);
    else if constexpr (kUnit == 4)
      words[w] = *reinterpret_cast<const u32*>(from + at);
    else if constexpr (kUnit == 2)
      words[w] |= u32(*reinterpret_cast<const u16*>(from + at)) << at % 4 * 8;
    else
      words[w] |= u32(from[at]) << at % 4 * 8;
  }
}

}  // namespace kv
