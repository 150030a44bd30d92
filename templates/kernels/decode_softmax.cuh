// decode, middle part: what a warp keeps of its columns (scores, running softmax, output sums), and scores to probabilities.
//
// Softmax is base 2 in fp32 with a stale maximum: it is only renewed, by one vote of the warp, when a score exceeds it by
// kSlack. Probabilities are fp16, shifted by kBias powers of two into the middle of its range; the shift is in numerator and
// denominator alike.
// SPDX-License-Identifier: MIT
#pragma once
#include "core/simt.cuh"

namespace kv {

constexpr float kMasked = -1e30f;  // the score of a token that is not seen
constexpr float kFloor = -1e29f;   // the maximum before any token: above kMasked, so masked tokens weigh 2^-huge = 0
constexpr float kBias = 8.f;   // probabilities times 2^8: far from fp16's subnormals, and with kSlack from its largest
constexpr float kSlack = 6.f;  // powers of two that a probability may exceed 1 by before the maximum is renewed

template <class Plan>
using Scores = float[Plan::kColumnBlocks][4];
template <class Plan>
using Outputs = float[Plan::kColumnBlocks][Plan::kValueDim / 16][4];

// Running softmax of the lane's columns: maximum (base 2, stale by up to kSlack) and the lane's share of the denominator.
template <class Plan>
struct Softmax {
  float top[Plan::kColumnBlocks][2], sum[Plan::kColumnBlocks][2];
};

// Scores to probabilities, as B fragments of P^T: scale, mask, renew the maximum if any lane asks for it, exponentiate, transpose.
template <class Plan>
KV_DEVICE void soften(u32 (&p)[Plan::kSubtiles][Plan::kColumnBlocks][2], Scores<Plan> (&s)[Plan::kSubtiles],
                      Softmax<Plan>& softmax, Outputs<Plan>& o, float scale, int token, int end, int length) {
  constexpr int kTokens = Plan::kSubtiles * 16, kScores = 4 * Plan::kColumnBlocks;
  const int g = lane() >> 2, c = lane() & 3;
  const bool needs_mask = token + kTokens > end || Plan::Feature::cuts(token + kTokens - 1, length);
  bool grown = false;
  KV_UNROLL
  for (int sub = 0; sub < Plan::kSubtiles; ++sub) {
    KV_UNROLL
    for (int i = 0; i < kScores; ++i) {
      const int n = i / 4, j = i % 4;
      float& score = s[sub][n][j];
      score *= scale;
      if (needs_mask) {
        const int t = token + sub * 16 + g + 8 * (j >> 1), row = n * 8 + 2 * c + (j & 1);
        if (t >= end || !Plan::Feature::sees(row / Plan::kGroup, t, length)) score = kMasked;
      }
      grown |= score > softmax.top[n][j & 1] + kSlack;
    }
  }
  if (any(grown)) {
    KV_UNROLL
    for (int i = 0; i < 2 * Plan::kColumnBlocks; ++i) {
      const int n = i / 2, j = i % 2;
      float top = softmax.top[n][j];
      KV_UNROLL
      for (int sub = 0; sub < Plan::kSubtiles; ++sub) top = larger(top, larger(s[sub][n][j], s[sub][n][j + 2]));
      KV_UNROLL
      for (int mask = 4; mask < 32; mask <<= 1) top = larger(top, shfl_xor(top, mask));
      const float keep = exp2_fast(softmax.top[n][j] - top);
      softmax.top[n][j] = top;
      softmax.sum[n][j] *= keep;
      KV_UNROLL
      for (int tile = 0; tile < Plan::kValueDim / 16; ++tile) o[n][tile][j] *= keep, o[n][tile][j + 2] *= keep;
    }
  }
  KV_UNROLL
  for (int i = 0; i < Plan::kSubtiles * Plan::kColumnBlocks; ++i) {
    const int sub = i / Plan::kColumnBlocks, n = i % Plan::kColumnBlocks;
    float e[4];
    KV_UNROLL
    for (int j = 0; j < 4; ++j) {
      e[j] = exp2_fast(s[sub][n][j] - softmax.top[n][j & 1] + kBias);
      softmax.sum[n][j & 1] += e[j];
    }
    p[sub][n][0] = transpose_8x8(pack_f16x2(e[0], e[1]));
    p[sub][n][1] = transpose_8x8(pack_f16x2(e[2], e[3]));
  }
}

}  // namespace kv
