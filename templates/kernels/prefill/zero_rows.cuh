// Rows of prefill whose codes count from a zero point (kernels/decode/rare/unpack.cuh). The loads of a row bring its
// zero points behind the words of each lane read. The generator writes Section::zero(scales, group).
// SPDX-License-Identifier: MIT
#pragma once
#include "kernels/decode/rare/unpack.cuh"
#include "kernels/prefill/producer.cuh"

namespace kv {

template <class S>
struct ZeroRead {
  KV_DEVICE static void row(const u32 (&w)[S::kReadWords + 1], u32 (&h)[S::kReadCodes / 2], Table table) {
    u32 words[S::kReadWords];
    KV_UNROLL
    for (int i = 0; i < S::kReadWords; ++i) words[i] = w[i];
    CodeRead<S>::row(words, h, table);
    scale_pairs(h, 0x3c003c00u, w[S::kReadWords]);  // two halves of 1
  }
};

// In place of RowReads of kernels/prefill/producer.cuh.
template <class S, bool kScalesScores>
requires(S::kSubtractsZeros) struct RowReads<S, kScalesScores> {
  static constexpr int kReads = S::kGroups * S::kReads;
  u32 codes[kReads][S::kReadWords + 1];
  u32 scale[kReads];  // a half; f32, where it multiplies scores

  template <class Side>
  KV_DEVICE void load(SharedAddress stage, int row, u32 misalignment, int c) {
    KV_UNROLL
    for (int i = 0; i < kReads; ++i) {
      const int group = i / S::kReads, read = i % S::kReads;
      u32 words[S::kReadWords];
      load_codes<S>(stage + (row & ~7) * Side::kPitch, (row & 7) * Side::kPitch + misalignment, group, read, c, words);
      KV_UNROLL
      for (int w = 0; w < S::kReadWords; ++w) codes[i][w] = words[w];
      const SharedAddress scales = scales_of<Side, S>(stage, misalignment, row, group, c);
      codes[i][S::kReadWords] = minus_counted(S::zero(scales, 0)) * 0x10001u;
      scale[i] = kScalesScores ? bits_of(S::scale(scales, 0)) : S::scale_half(scales, 0);
    }
  }
  template <int kPairs>
  KV_DEVICE float of_row(const u32 (&)[kPairs]) const {
    return float_of(scale[0]);
  }
  template <int kPairs>
  KV_DEVICE void apply(u32 (&h)[kPairs], int i) const {
    KV_UNROLL
    for (int j = 0; j < kPairs; ++j) h[j] = mul_f16x2(h[j], scale[i] * 0x10001u);
  }
};

}  // namespace kv
