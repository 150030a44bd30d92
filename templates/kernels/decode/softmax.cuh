// decode, middle part: what a warp keeps of its columns (running softmax, output sums), and scores to probabilities.
//
// Softmax is base 2 in fp32, relative to a stale maximum: scores arrive as x = score - base, probabilities are 2^x, and
// base is only renewed, by one vote of the warp, when an x is above kLimit. base lies kBias below the maximum when it
// is renewed, which puts probabilities into the middle of fp16's range; the factor is in numerator and denominator
// alike.
// SPDX-License-Identifier: MIT
#pragma once
#include "device/simt.cuh"
#include "kernels/decode/query_chunks.cuh"
#include "kernels/decode/tile_scheduler.cuh"

namespace kv {

constexpr float kMasked = -1e30f;  // x of a token that is not seen: 2^x = 0
constexpr float kFloor = -1e29f;   // the base of a column that has seen no token; any score is above
constexpr float kBias = 8.f;       // the largest probability is 2^8 after a renewal: far from fp16's subnormals
constexpr float kLimit = 14.f;     // ... and at most 2^14: far from its largest
constexpr int kAlways = -2147483647 - 1;

template <class Plan>
using Scores = float[Plan::kColumnBlocks][4];
template <class Plan>
using Outputs = float[Plan::kOwnBlocks][Plan::kValueDim / 16 / Plan::kValueShare][4];

// Warps of a team (kernels/decode/warp_team.cuh) share the output: kValueShare of them the dimensions of V, and as many
// as are left the blocks of columns. A warp that works alone has all.
template <class Plan>
struct Share {
  KV_DEVICE static int member() { return Plan::kTeam == 1 ? 0 : warp() % Plan::kTeam; }
  KV_DEVICE static int value_part() { return member() % Plan::kValueShare; }
  KV_DEVICE static int first_block() {
    return Plan::kOwnBlocks == Plan::kColumnBlocks ? 0 : member() / Plan::kValueShare * Plan::kOwnBlocks;
  }
};

// Where the bases of a warp stand: in registers, or (decode_team) in shared memory.
template <class Plan, bool kAreShared>
struct BasesOf {
  using Type = float[Plan::kColumnBlocks][2];
};
// Of the lane's columns 2c and 2c + 1 of each block of eight.
template <class Plan>
struct Softmax {
  typename BasesOf<Plan, Plan::kSharesBases>::Type base;
  float sum[Plan::kColumnBlocks][2];  // the lane's share of the denominator
  u32 unseen;                         // a bit a column: it has seen no token yet
  int renews_at;  // least largest_bits() that the base is renewed for: any, while a column has seen none

  KV_DEVICE void reset() {
    unseen = (1u << 2 * Plan::kColumnBlocks) - 1;
    renews_at = kAlways;
    KV_UNROLL
    for (int i = 0; i < 2 * Plan::kColumnBlocks; ++i) base[i / 2][i % 2] = 0.f, sum[i / 2][i % 2] = 0.f;
  }
  KV_DEVICE float base_or_floor(int n, int j) const { return unseen >> (2 * n + j) & 1 ? kFloor : float(base[n][j]); }
};

// What a part asks of its scores: nothing but which tokens a row sees. Plans with features
// (kernels/decode/features.cuh) ask for more.
template <class Plan>
struct PlainFeatures {
  Turn<Plan> turn;
  int length;
  struct Loaded {};
  KV_DEVICE bool cuts(int, int last) const { return Plan::Feature::cuts(last, length); }
  KV_DEVICE bool sees(int row, int token) const { return Plan::Feature::sees(turn.query(row), token, length); }
  KV_DEVICE void load(Loaded&, int) const {}
  KV_DEVICE void apply(Scores<Plan> (&)[Plan::kSubtiles], const Loaded&, int, const Softmax<Plan>&) const {}
};
template <class Plan, class Args>
KV_DEVICE PlainFeatures<Plan> features_of(const Args&, const Part& part) {
  return {Turn<Plan>(part.head), part.length};
}

// Takes from each x whose token its row does not see.
template <class Plan, class Features>
KV_DEVICE void mask_scores(Scores<Plan> (&x)[Plan::kSubtiles], const Features& features, int token, int length) {
  const int g = lane() >> 2, c = lane() & 3;
  KV_UNROLL
  for (int i = 0; i < Plan::kSubtiles * 4 * Plan::kColumnBlocks; ++i) {
    const int sub = i / (4 * Plan::kColumnBlocks), n = i / 4 % Plan::kColumnBlocks, j = i % 4;
    const int t = token + sub * 16 + g + 8 * (j >> 1), row = n * 8 + 2 * c + (j & 1);
    if (t >= length || !features.sees(row, t)) x[sub][n][j] = kMasked;
  }
}

// The largest x of the lane, as the bits of a float: integers of one sign order as floats do, and a NaN is above all
// numbers.
template <class Plan>
KV_DEVICE int largest_bits(const Scores<Plan> (&x)[Plan::kSubtiles]) {
  int largest = int(bits_of(x[0][0][0]));
  KV_UNROLL
  for (int i = 1; i < Plan::kSubtiles * 4 * Plan::kColumnBlocks; ++i) {
    const int bits = int(bits_of(x[i / (4 * Plan::kColumnBlocks)][i / 4 % Plan::kColumnBlocks][i % 4]));
    largest = bits > largest ? bits : largest;
  }
  return largest;
}

// The largest x of a column of the warp, 2c + i % 2 of block i / 2.
template <class Plan>
KV_DEVICE float column_top(const Scores<Plan> (&x)[Plan::kSubtiles], int i) {
  float top = kMasked;
  KV_UNROLL
  for (int sub = 0; sub < Plan::kSubtiles; ++sub)
    top = larger(top, larger(x[sub][i / 2][i % 2], x[sub][i / 2][i % 2 + 2]));
  KV_UNROLL
  for (int mask = 4; mask < 32; mask <<= 1) top = larger(top, shfl_xor(top, mask));
  return top;
}

// The same of all who share a base: of the warp, or (decode_team) of its team. show(x) comes before.
template <class Plan, bool kIsTeam>
struct Tops {
  KV_DEVICE static void show(const Scores<Plan> (&)[Plan::kSubtiles]) {}
  KV_DEVICE static float top(const Scores<Plan> (&x)[Plan::kSubtiles], int i) { return column_top<Plan>(x, i); }
};

// Moves base so that the largest x of each column becomes kBias, if that is up or the column's first token. Rare.
template <class Plan>
KV_DEVICE void renew_base(Scores<Plan> (&x)[Plan::kSubtiles], Softmax<Plan>& softmax, Outputs<Plan>& o) {
  using Tops = kv::Tops<Plan, (Plan::kTeam > 1)>;
  Tops::show(x);
  KV_UNROLL
  for (int i = 0; i < 2 * Plan::kColumnBlocks; ++i) {
    const int n = i / 2, j = i % 2;
    const float top = Tops::top(x, i);
    const bool is_first = softmax.unseen >> i & 1, is_seen = top > kFloor;
    const float shift = is_seen && (is_first || top > kBias) ? top - kBias : 0.f;
    const float keep = is_first ? 1.f : exp2_fast(-shift);  // sums are zero before the first token
    if (is_seen) softmax.unseen &= ~(1u << i);
    softmax.base[n][j] += shift;
    softmax.sum[n][j] *= keep;
    KV_UNROLL
    for (int sub = 0; sub < Plan::kSubtiles; ++sub) x[sub][n][j] -= shift, x[sub][n][j + 2] -= shift;
    if (Plan::kOwnBlocks < Plan::kColumnBlocks && n / Plan::kOwnBlocks != Share<Plan>::first_block() / Plan::kOwnBlocks)
      continue;
    KV_UNROLL
    for (int tile = 0; tile < Plan::kValueDim / 16 / Plan::kValueShare; ++tile)
      o[n % Plan::kOwnBlocks][tile][j] *= keep, o[n % Plan::kOwnBlocks][tile][j + 2] *= keep;
  }
  softmax.renews_at = softmax.unseen ? kAlways : int(bits_of(kLimit)) + 1;
}

// Probabilities as B fragments of P^T, or of a team as they come: rows are tokens, in pairs of columns.
template <class Plan>
KV_DEVICE void exponentiate(u32 (&p)[Plan::kSubtiles][Plan::kColumnBlocks][2], const Scores<Plan> (&x)[Plan::kSubtiles],
                            Softmax<Plan>& softmax) {
  KV_UNROLL
  for (int i = 0; i < Plan::kSubtiles * Plan::kColumnBlocks; ++i) {
    const int sub = i / Plan::kColumnBlocks, n = i % Plan::kColumnBlocks;
    float e[4];
    KV_UNROLL
    for (int j = 0; j < 4; ++j) {
      e[j] = exp2_fast(x[sub][n][j]);
      softmax.sum[n][j & 1] += e[j];
    }
    KV_UNROLL
    for (int half = 0; half < 2; ++half) {
      p[sub][n][half] = pack_f16x2(e[2 * half], e[2 * half + 1]);
      if constexpr (Plan::kTeam == 1) p[sub][n][half] = transpose_8x8(p[sub][n][half]);
    }
  }
}

}  // namespace kv
