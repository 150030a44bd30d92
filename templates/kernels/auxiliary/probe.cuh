// probe: reads every byte of a buffer once and keeps nothing. No kernel that has to read as many bytes can be faster,
// so its time over a cache is the bound by which `kvjit bench` judges. Neighbouring lanes read neighbouring 16-byte
// vectors, and the grid strides over the buffer.
// SPDX-License-Identifier: MIT
#pragma once
#include "args/attention.cuh"
#include "device/simt.cuh"

namespace kv {

template <class Plan>
KV_DEVICE void probe(const ProbeArgs& args) {
  constexpr int kUnroll = Plan::kUnroll;  // loads that a lane has in flight
  constexpr int kVector = 16;             // bytes
  i64 at = i64(block_x()) * Plan::kThreads + thread();
  u32 mixed = 0;
  for (; at + (kUnroll - 1) * args.step < args.vectors; at += kUnroll * args.step) {
    u32 words[kUnroll][4];
    KV_UNROLL
    for (int i = 0; i < kUnroll; ++i) load_once_u128(words[i], args.from + (at + i * args.step) * kVector);
    KV_UNROLL
    for (int i = 0; i < kUnroll; ++i) mixed ^= words[i][0] ^ words[i][1] ^ words[i][2] ^ words[i][3];
  }
  KV_NO_UNROLL  // An unrolled loop would need a division to count its rounds.
  for (; at < args.vectors; at += args.step) {
    u32 words[4];
    load_once_u128(words, args.from + at * kVector);
    mixed ^= words[0] ^ words[1] ^ words[2] ^ words[3];
  }
  if (mixed == args.needle) *args.found = mixed;  // The compiler cannot drop loads that this depends on.
}

}  // namespace kv
