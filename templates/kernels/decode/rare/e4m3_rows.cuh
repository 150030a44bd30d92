// Unpacks rows of K in E4M3 to fp16 in the order of their bytes, with the interface of kernels/decode/unpack_f16.cuh. A
// word is four values, so nothing is permuted; Q has its dimensions in the same order.
// SPDX-License-Identifier: MIT
#pragma once
#include "kernels/decode/unpack_f16.cuh"

namespace kv {

template <class S>
struct E4m3Read {
  KV_DEVICE static void row(const u32 (&w)[S::kReadWords], u32 (&h)[S::kReadCodes / 2], Table) {
    KV_UNROLL
    for (int i = 0; i < S::kReadCodes / 4; ++i) f16x4_from_e4m3x4(h + 2 * i, w[i]);
  }
};

}  // namespace kv
