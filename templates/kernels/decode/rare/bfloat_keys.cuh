// Rows of K in bf16 and f32 as bfloats, with the interface of kernels/decode/unpack_f16.cuh: they keep the exponents of
// f32, which fp16 does not have, and bf16 needs no conversion. A value of f32 is the sum of three bfloats, exactly: the
// first has the upper eight bits of its mantissa, the second the next eight, and the third the rest.
// SPDX-License-Identifier: MIT
#pragma once
#include "kernels/decode/unpack_f16.cuh"

namespace kv {

template <class S>
struct BfloatRead {
  KV_DEVICE static void row(const u32 (&w)[S::kReadWords], u32 (&h)[S::kReadCodes / 2], Table) {
    KV_UNROLL
    for (int i = 0; i < S::kReadWords; ++i) h[i] = w[i];
  }
};

template <class S>
struct BfloatTermsRead {
  KV_DEVICE static void row(const u32 (&w)[S::kReadWords], u32 (&h)[S::kReadCodes / 2], Table) { upper_halves(w, h); }
  // The next terms. w becomes what the terms before them miss.
  KV_DEVICE static void rest(u32 (&w)[S::kReadWords], u32 (&h)[S::kReadCodes / 2]) {
    KV_UNROLL
    for (u32& word : w) word = bits_of(float_of(word) - float_of(word & 0xffff0000u));
    upper_halves(w, h);
  }

 private:
  KV_DEVICE static void upper_halves(const u32 (&w)[S::kReadWords], u32 (&h)[S::kReadCodes / 2]) {
    KV_UNROLL
    for (int i = 0; i < S::kReadWords / 2; ++i) h[i] = permute(w[2 * i], w[2 * i + 1], 0x7632);
  }
};

}  // namespace kv
