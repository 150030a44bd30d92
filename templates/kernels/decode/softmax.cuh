// Online softmax of one warp: scores of a tile to probabilities, and the running state of each query row (a column of
// the swapped product, see decode.cuh). Scores and sums are fp32, and exponents are of base 2: a score is Q K times the
// softmax scale times log2(e). Scores arrive relative to a reference maximum, which may be stale:
//
//   x = score - reference_max            one multiply-add behind the product Q K
//   P = 2^x;  denominator += P;  O += P V
//
// FlashAttention takes the row_max of every tile as the reference and rescales as often. Here the warp votes once a
// tile and rescales only if some x is above kLimit = 14, or a row has seen no token yet:
//
//   shift = row_max(x) - kBias           of each row whose row_max(x) is above kLimit, or which is new; kBias = 8
//   reference_max += shift;  x -= shift;  denominator and O *= 2^-shift, the rescale factor
//
// So after a rescale the largest probability is 2^8, in the middle of fp16's range, and it never exceeds 2^14.
// Numerator and denominator have the same factor, so the output does not depend on the reference. A row moves by its
// own scores alone, so its bits do not depend on the other rows of the call.
// SPDX-License-Identifier: MIT
#pragma once
#include "device/simt.cuh"
#include "kernels/decode/query_chunks.cuh"
#include "kernels/decode/tile_scheduler.cuh"

namespace kv {

constexpr float kMasked = -1e30f;  // x of a token that the row does not see: 2^x = 0
constexpr float kFloor = -1e29f;   // reference maximum of a row that has seen no token; every score is above it
constexpr float kBias = 8.f;       // log2 of the largest probability after a rescale: far from fp16's subnormals
constexpr float kLimit = 14.f;     // log2 of the largest probability without a rescale: far from fp16's largest number
constexpr int kAlways = -2147483647 - 1;  // value of `rescales_at` that every vote reaches

// Scores, or x, of 16 tokens in the accumulator layout (device/simt.cuh): [block of 8 columns][register].
template <class Plan>
using Scores = float[Plan::kColumnBlocks][4];
// The warp's slice of O^T: [block of 8 columns][block of 16 dimensions of V][register].
template <class Plan>
using Outputs = float[Plan::kOwnBlocks][Plan::kValueDim / 16 / Plan::kValueShare][4];

// The slice of the output that one warp sums. Warps of a team (kernels/decode/warp_team.cuh) divide the output:
// kValueShare warps have different dimensions of V, and the others of the team have different blocks of columns. A warp
// without a team has the whole output.
template <class Plan>
struct TeamWarp {
  KV_DEVICE static int member() { return Plan::kTeam == 1 ? 0 : warp() % Plan::kTeam; }
  KV_DEVICE static int value_slice() { return member() % Plan::kValueShare; }
  KV_DEVICE static int first_block() {
    return Plan::kOwnBlocks == Plan::kColumnBlocks ? 0 : member() / Plan::kValueShare * Plan::kOwnBlocks;
  }
};

// Where the reference maxima of a warp are stored: in registers, or in shared memory (kernels/decode/warp_team.cuh).
template <class Plan, bool kAreShared>
struct ReferenceMaxOf {
  using Type = float[Plan::kColumnBlocks][2];
};
// Running softmax of the lane's query rows: columns 2c and 2c + 1 of each block of eight, with c = lane() & 3.
template <class Plan>
struct Softmax {
  typename ReferenceMaxOf<Plan, Plan::kSharesReferenceMax>::Type
      reference_max;                  // reference maximum of each column, base 2
  float sum[Plan::kColumnBlocks][2];  // the lane's partial denominator, over its own tokens
  u32 empty_columns;                  // a bit a column: set until the column sees its first token
  int rescales_at;  // a rescale is due if largest_bits() is at least this; kAlways while a column has seen no token

  KV_DEVICE void reset() {
    empty_columns = (1u << 2 * Plan::kColumnBlocks) - 1;
    rescales_at = kAlways;
    KV_UNROLL
    for (int i = 0; i < 2 * Plan::kColumnBlocks; ++i) reference_max[i / 2][i % 2] = 0.f, sum[i / 2][i % 2] = 0.f;
  }
  KV_DEVICE float reference_or_floor(int n, int j) const {
    return empty_columns >> (2 * n + j) & 1 ? kFloor : float(reference_max[n][j]);
  }
};

// The features of plans that have none: they say which tokens a row sees, and change no score. Plans with features have
// SplitFeatures (kernels/decode/features.cuh).
template <class Plan>
struct PlainFeatures {
  static constexpr bool kMayHide = Plan::Feature::kMayHide, kHidesByScore = false, kHidesLate = false;
  QueryChunk<Plan> chunk;
  int length;
  struct Loaded {};
  KV_DEVICE bool cuts(int, int last) const { return Plan::Feature::cuts(last, length); }
  KV_DEVICE bool sees(int row, int token) const { return Plan::Feature::sees(chunk.query(row), token, length); }
  KV_DEVICE void load(Loaded&, int) const {}
  KV_DEVICE void apply(Scores<Plan> (&)[Plan::kSubtiles], const Loaded&, int, const Softmax<Plan>&) const {}
};
template <class Plan, class Args>
KV_DEVICE PlainFeatures<Plan> features_of(const Args&, const KvSplit& split) {
  return {QueryChunk<Plan>(split.head), split.length};
}

// Masks each x whose token is behind the sequence's end or is not seen by its row.
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

// The largest x of the lane, as the bits of a float. As integers they order positive floats, any positive float is
// above all negative ones, and a NaN is above all numbers, so a NaN makes the vote due.
template <class Plan>
KV_DEVICE int largest_bits(const Scores<Plan> (&x)[Plan::kSubtiles]) {
  int largest = ordered_bits(x[0][0][0]);
  KV_UNROLL
  for (int i = 1; i < Plan::kSubtiles * 4 * Plan::kColumnBlocks; ++i) {
    const int bits = ordered_bits(x[i / (4 * Plan::kColumnBlocks)][i / 4 % Plan::kColumnBlocks][i % 4]);
    largest = bits > largest ? bits : largest;
  }
  return largest;
}

// Hides what features hide late (FeatureDefaults::kHidesLate), if a score is plus infinity or NaN.
template <class Plan, class Features>
KV_DEVICE void hide_late(Scores<Plan> (&x)[Plan::kSubtiles], const Features& features, int token) {
  constexpr int kInfinity = 0x7f800000;
  if constexpr (Features::kHidesLate)
    if (any(largest_bits<Plan>(x) >= kInfinity)) features.hide_late(x, token);
}

// row_max of column 2c + i % 2 of column block i / 2, over the warp's tokens of this tile.
template <class Plan>
KV_DEVICE float column_max(const Scores<Plan> (&x)[Plan::kSubtiles], int i) {
  float row_max = kMasked;
  KV_UNROLL
  for (int sub = 0; sub < Plan::kSubtiles; ++sub)
    row_max = larger(row_max, larger(x[sub][i / 2][i % 2], x[sub][i / 2][i % 2 + 2]));
  KV_UNROLL
  for (int mask = 4; mask < 32; mask <<= 1) row_max = larger(row_max, shfl_xor(row_max, mask));
  return row_max;
}

// row_max over all warps that share a reference maximum: one warp, or its team (kernels/decode/warp_team.cuh).
// Call show(x) before row_max(x, i).
template <class Plan, bool kIsTeam>
struct TeamRowMax {
  KV_DEVICE static void show(const Scores<Plan> (&)[Plan::kSubtiles]) {}
  KV_DEVICE static float row_max(const Scores<Plan> (&x)[Plan::kSubtiles], int i) { return column_max<Plan>(x, i); }
};

// Rescales: moves each reference maximum so that the row's largest x becomes kBias, if that x is above kLimit or the
// row sees its first token. Rare.
template <class Plan>
KV_DEVICE void rescale(Scores<Plan> (&x)[Plan::kSubtiles], Softmax<Plan>& softmax, Outputs<Plan>& o) {
  using TeamRowMax = kv::TeamRowMax<Plan, (Plan::kTeam > 1)>;
  TeamRowMax::show(x);
  KV_UNROLL
  for (int i = 0; i < 2 * Plan::kColumnBlocks; ++i) {
    const int n = i / 2, j = i % 2;
    const float row_max = TeamRowMax::row_max(x, i);
    const bool is_first = softmax.empty_columns >> i & 1, has_tokens = row_max > kFloor;
    const float shift = has_tokens && (is_first || row_max > kLimit) ? row_max - kBias : 0.f;
    const float rescale_factor = is_first ? 1.f : exp2_fast(-shift);  // before the first token all sums are zero
    if (has_tokens) softmax.empty_columns &= ~(1u << i);
    softmax.reference_max[n][j] += shift;
    softmax.sum[n][j] *= rescale_factor;
    KV_UNROLL
    for (int sub = 0; sub < Plan::kSubtiles; ++sub) x[sub][n][j] -= shift, x[sub][n][j + 2] -= shift;
    if (Plan::kOwnBlocks < Plan::kColumnBlocks &&
        n / Plan::kOwnBlocks != TeamWarp<Plan>::first_block() / Plan::kOwnBlocks)
      continue;
    KV_UNROLL
    for (int tile = 0; tile < Plan::kValueDim / 16 / Plan::kValueShare; ++tile)
      o[n % Plan::kOwnBlocks][tile][j] *= rescale_factor, o[n % Plan::kOwnBlocks][tile][j + 2] *= rescale_factor;
  }
  softmax.rescales_at = softmax.empty_columns ? kAlways : int(bits_of(kLimit)) + 1;
}

// P = 2^x in fp16; the denominator gets the sum of 2^x. For one warp: B fragments of P^T. For a team: not transposed,
// each row of an 8 x 8 matrix is a token, and a register has two of its columns.
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
