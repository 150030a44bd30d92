// Scores of a staged tile: x = Q K^T x factor - reference maximum, section by section of K's rows. Each warp loads
// codes of 16 tokens a subtile, unpacks them to A fragments (half2 by unpack_f16.cuh, or int8 by unpack_int8.cuh), and
// multiplies them by the B fragments of Q (query_fragments.cuh). Four lanes share a row of K: lane 4 g + c has bytes of
// tokens g and g + 8. What one lane loads and unpacks at once is a lane read (`kReadCodes` codes of one row). A group
// is the codes that share one scale; its scale multiplies the sum of the group's products, in fp32.
// SPDX-License-Identifier: MIT
#pragma once
#include "kernels/decode/unpack_int8.cuh"
#include "kernels/decode/unpack_outliers.cuh"
#include "kernels/decode/unpack_f16.cuh"
#include "kernels/decode/query_fragments.cuh"
#include "kernels/decode/stage_tile.cuh"
#include "formats/minifloat.cuh"
#include "kernels/decode/softmax.cuh"

namespace kv {

// The sum over the lanes whose numbers differ in kBits bits from kFirstBit on: those that share a row of K (bits 0, 1)
// or a column of V (bits 2 to 4).
template <int kFirstBit, int kBits>
KV_DEVICE float over_lanes(float x) {
  KV_UNROLL
  for (int i = 0; i < kBits; ++i) x += shfl_xor(x, 1 << (kFirstBit + i));
  return x;
}
// Adds the squares of the low fp16 of each register to `low`, and those of the high fp16 to `high`.
template <int kPairs>
KV_DEVICE void add_squares(const u32 (&h)[kPairs], float& low, float& high) {
  KV_UNROLL
  for (int i = 0; i < kPairs; ++i) {
    const float x = f32_from_f16(h[i] & 0xffffu), y = f32_from_f16(h[i] >> 16);
    low += x * x, high += y * y;
  }
}

// Chains of products that do not depend on each other: of the first term of Q, and of the others.
template <class Plan>
constexpr int kChains = Plan::kQueryTerms > 1 ? 2 : 1;

// sum += one lane read of K, of rows g (a) and g + 8 (b), times the first kTerms terms of Q.
template <class Plan, class S, int kTerms, int kPairs>
KV_DEVICE void multiply_read(Scores<Plan> (&sum)[kChains<Plan>], const u32 (&a)[kPairs], const u32 (&b)[kPairs],
                             const Queries<Plan>& queries, int fragment) {
  if constexpr (Plan::kByWarpgroups) return Plan::Products::template score_read<S, kTerms>(sum[0], a, b, fragment);
  KV_UNROLL
  for (int i = 0; i < kPairs / 2 * Plan::kColumnBlocks; ++i) {
    const int step = i / Plan::kColumnBlocks, n = i % Plan::kColumnBlocks;
    u32 q[Queries<Plan>::kWords];
    queries.get(fragment + i, q);
    KV_UNROLL
    for (int term = 0; term < kTerms; ++term) {
      auto& chain = sum[term > 0][n];
      if constexpr (S::kAsBfloats)
        mma_16x8x16_bf16(chain, a[2 * step], b[2 * step], a[2 * step + 1], b[2 * step + 1], q[2 * term],
                         q[2 * term + 1]);
      else
        mma_16x8x16(chain, a[2 * step], b[2 * step], a[2 * step + 1], b[2 * step + 1], q[2 * term], q[2 * term + 1]);
    }
  }
}

// Whether stored scales of K may lead beyond fp16. Then divide() takes powers of two of tokens out of a staged tile,
// and restore() puts them back into its scores (rare/half_key_scales.cuh).
template <class Plan>
concept DividesKeys = requires {
  Plan::K::kMostScales;
};
template <class Plan>
struct DividedKeys {
  KV_DEVICE void divide(SharedAddress, int, const u32 (&)[Plan::kSubtiles][2]) {}
  KV_DEVICE void restore(Scores<Plan> (&)[Plan::kSubtiles]) const {}
};

// How a section's sums of products become scores. If K is one section with one group of scales, the factor from
// products to scores joins that scale, and x is one multiply-add behind the products. Else the groups add up to a score
// first.
template <class Plan, class S>
struct Gather {
  static constexpr bool kIsDone = S::kDim == Plan::K::kDim && S::kGroups == 1 && !S::kAddsMinima && !DividesKeys<Plan>;
  float common_factor;  // what Queries::hold() has returned
  const Queries<Plan>& queries;
  const Softmax<Plan>& softmax;
  // The factor of products, by a scale of the lane's two tokens and by the lane's columns of block n.
  KV_DEVICE void factor(float (&of)[4], const float (&scale)[2], int n) const {
    float of_column[2] = {1.f, 1.f};
    if constexpr (kIsDone) queries.units.get(of_column, n, common_factor);
    KV_UNROLL
    for (int j = 0; j < 4; ++j) of[j] = scale[j / 2] * of_column[j % 2];
  }
  KV_DEVICE float before(const Scores<Plan>& s, int group, int i) const {
    if constexpr (kIsDone) return -softmax.reference_max[i / 4][i % 2];
    return S::kFirst > 0 || group > 0 ? s[i / 4][i % 4] : 0.f;
  }
};

// Multiplies sums of products by the units of their columns, where some are rare.
template <class Plan>
KV_DEVICE void apply_rare_units(const Queries<Plan>& queries, Scores<Plan>& sum) {
  queries.units.apply_rare([&](int n, const float(&unit)[2]) {
    KV_UNROLL
    for (int j = 0; j < 4; ++j) sum[n][j] *= unit[j % 2];
  });
}

// Misalignment (unaligned_rows.cuh) of the lane's rows g and g + 8 of each subtile.
template <class Side, int kSubtiles>
KV_DEVICE void key_misalignments(u32 (&misalignment)[kSubtiles][2], const u8* first_row, i64 token_stride) {
  KV_UNROLL
  for (int i = 0; i < kSubtiles; ++i) {
    misalignment[i][0] = row_misalignment<Side>(first_row, token_stride, lane() >> 2);
    misalignment[i][1] = upper_misalignment<Side>(misalignment[i][0], token_stride);
  }
}

// Powers of two for numbers that leave the range of fp16: sums of products of the lane's row i of two are multiplied by
// up(i). Before, scales of values were multiplied by down(i) (rare/wide_scales.cuh), or divide() divided the elements
// of a lane read by up(i) (rare/wide_keys.cuh). Other sections need none.
template <class Plan, class S>
struct TokenPowers {
  KV_DEVICE void find(SharedAddress, const u32 (&)[2], int, int) {}
  KV_DEVICE float down(int) const { return 1.f; }
  KV_DEVICE float up(int) const { return 1.f; }
  template <int kWords>
  KV_DEVICE void divide(int, u32 (&)[kWords]) const {}
};

// Scores of one section of K: s = its products, or s += them if it is not the first. For kSubtiles x 16 tokens of the
// staged tile, from row `first` on, in the accumulator layout (device/simt.cuh). misalignment: of the lane's rows g and
// g + 8 of each subtile.
template <class Plan, class S>
KV_DEVICE void score_section(Scores<Plan> (&s)[Plan::kSubtiles], SharedAddress stage, int first,
                             const u32 (&misalignment)[Plan::kSubtiles][2], const Queries<Plan>& queries, Table table,
                             const Gather<Plan, S>& gather) {
  using K = typename Plan::K;
  constexpr int kSteps = S::kReadCodes / 4;  // k16 steps of a lane read: four lanes bring four codes each
  const int g = lane() >> 2, c = lane() & 3;
  // Fragments in registers cannot be indexed, so all groups are unrolled. Otherwise two groups are enough and compile
  // sooner. Sections with outlier channels (kIsMasked) take one, since two leave no registers for many sums of output.
  KV_UNROLL_BY(Plan::kHoldQueries ? S::kGroups : S::kIsMasked ? 1 : 2)
  for (int group = 0; group < S::kGroups; ++group) {
    KV_UNROLL
    for (int sub = 0; sub < Plan::kSubtiles; ++sub) {
      const int row = first + sub * 16 + g;
      Scores<Plan> sum[kChains<Plan>] = {};
      TokenPowers<Plan, S> powers;
      powers.find(stage, misalignment[sub], row, group);
      [[maybe_unused]] float squares[2] = {};
      KV_UNROLL
      for (int read = 0; read < S::kReads; ++read) {
        u32 a[S::kReadCodes / 2], b[S::kReadCodes / 2];
        [[maybe_unused]] u32 low[S::kIsMasked ? 1 : S::kReadWords], high[S::kIsMasked ? 1 : S::kReadWords];
        if constexpr (S::kIsMasked) {
          const SharedAddress at = stage + row * K::kPitch + misalignment[sub][0],
                              at_high = stage + (row + 8) * K::kPitch + misalignment[sub][1];
          masked_row<S>(at + group * S::kBlockStride, scales_of<K, S>(stage, misalignment[sub][0], row, group, c), c,
                        a);
          masked_row<S>(at_high + group * S::kBlockStride,
                        scales_of<K, S>(stage, misalignment[sub][1], row + 8, group, c), c, b);
        } else {
          load_codes<S>(stage + (first + sub * 16) * K::kPitch, g * K::kPitch + misalignment[sub][0], group, read, c,
                        low);
          load_codes<S>(stage + (first + sub * 16 + 8) * K::kPitch, g * K::kPitch + misalignment[sub][1], group, read,
                        c, high);
          powers.divide(0, low), powers.divide(1, high);
          S::Read::row(low, a, table);
          S::Read::row(high, b, table);
        }
        if constexpr (S::kScalesValues) {
          const SharedAddress scales = scales_of<K, S>(stage, misalignment[sub][0], row, group, c),
                              scales_high = scales_of<K, S>(stage, misalignment[sub][1], row + 8, group, c);
          const int i = scale_index<S>(read, c);
          scale_pairs(a, f16_from_f32(S::scale(scales, i) * powers.down(0)) * 0x10001u,
                      S::minimum_half(scales, i) * 0x10001u);
          scale_pairs(b, f16_from_f32(S::scale(scales_high, i) * powers.down(1)) * 0x10001u,
                      S::minimum_half(scales_high, i) * 0x10001u);
        }
        if constexpr (S::kRenormalises) add_squares(a, squares[0], squares[0]), add_squares(b, squares[1], squares[1]);
        const int fragment = (S::kFirst / 16 + (group * S::kReads + read) * kSteps) * Plan::kColumnBlocks;
        multiply_read<Plan, S, S::kQueryTerms>(sum, a, b, queries, fragment);
        // Products of small terms of K are left out where the term of Q is small too.
        if constexpr (S::kRests > 0) {
          S::Read::rest(low, a), S::Read::rest(high, b);
          multiply_read<Plan, S, (S::kRests < S::kQueryTerms ? S::kRests : S::kQueryTerms)>(sum, a, b, queries,
                                                                                            fragment);
        }
        if constexpr (S::kRests > 1) {
          S::Read::rest(low, a), S::Read::rest(high, b);
          multiply_read<Plan, S, 1>(sum, a, b, queries, fragment);
        }
      }
      float scale[2] = {powers.up(0), powers.up(1)};
      [[maybe_unused]] float minimum[2] = {};
      if constexpr (S::kScalesGroups) {
        scale[0] *= S::scale(scales_of<K, S>(stage, misalignment[sub][0], row, group, c), 0);
        scale[1] *= S::scale(scales_of<K, S>(stage, misalignment[sub][1], row + 8, group, c), 0);
      }
      if constexpr (S::kRenormalises) {
        KV_UNROLL
        for (int i = 0; i < 2; ++i) scale[i] = div_rn(scale[i], sqrt_rn(over_lanes<0, 2>(squares[i])));
      }
      if constexpr (S::kAddsMinima) {
        minimum[0] = S::minimum(scales_of<K, S>(stage, misalignment[sub][0], row, group, c), 0);
        minimum[1] = S::minimum(scales_of<K, S>(stage, misalignment[sub][1], row + 8, group, c), 0);
      }
      if constexpr (kChains < Plan >> 1) {
        KV_UNROLL
        for (int i = 0; i < 4 * Plan::kColumnBlocks; ++i) sum[0][i / 4][i % 4] += sum[1][i / 4][i % 4];
      }
      if constexpr (Gather<Plan, S>::kIsDone) apply_rare_units<Plan>(queries, sum[0]);
      KV_UNROLL
      for (int i = 0; i < 4 * Plan::kColumnBlocks; ++i) {
        float before = gather.before(s[sub], group, i), factor[4];
        gather.factor(factor, scale, i / 4);
        if constexpr (S::kAddsMinima) before += minimum[i % 4 / 2] * float_of(queries.sum(group, i / 4 * 2 + i % 2));
        s[sub][i / 4][i % 4] = sum[0][i / 4][i % 4] * factor[i % 4] + before;
      }
    }
  }
}

// Scores of one section of K on integers. Q is 16-bit, q = 256 q_high + q_low, and K is y, or y + z / 256, with signed
// bytes q_high, q_low, y and an unsigned z. Sums are exact, in int32:
//
//   high = sum y q_high;   low = sum y q_low + sum z q_high;   256 high + low = sum q (y + z / 256)
//
// up to z q_low / 256, which is 2^-16 of the whole and is left out. If each code stands for y + 1/2, `low` begins with
// half the sum of q.
template <class Plan, class S>
KV_DEVICE void score_section_of_integers(Scores<Plan> (&s)[Plan::kSubtiles], SharedAddress stage, int first,
                                         const u32 (&misalignment)[Plan::kSubtiles][2], const Queries<Plan>& queries,
                                         const Gather<Plan, S>& gather) {
  using K = typename Plan::K;
  using Integers = typename S::Integers;
  constexpr int kWords = S::kReadCodes / 4,
                kSteps = S::kReadCodes / 8;  // k32 steps of a lane read: four lanes bring eight codes each
  const int g = lane() >> 2, c = lane() & 3;
  KV_UNROLL_BY(Plan::kHoldQueries ? S::kGroups : 2)
  for (int group = 0; group < S::kGroups; ++group) {
    int high[Plan::kSubtiles][Plan::kColumnBlocks][4] = {}, low[Plan::kSubtiles][Plan::kColumnBlocks][4] = {};
    if constexpr (Plan::kSumFactor != 0) {
      KV_UNROLL
      for (int i = 0; i < 2 * Plan::kColumnBlocks; ++i) {
        const int sum = int(queries.sum(group, i));
        KV_UNROLL
        for (int sub = 0; sub < Plan::kSubtiles; ++sub) low[sub][i / 2][i % 2] = low[sub][i / 2][i % 2 + 2] = sum;
      }
    }
    KV_UNROLL
    for (int read = 0; read < S::kReads; ++read) {
      u32 y[Plan::kSubtiles][2][kWords], z[Plan::kSubtiles][2][kWords];
      KV_UNROLL
      for (int i = 0; i < 2 * Plan::kSubtiles; ++i) {
        u32 w[S::kReadWords];
        load_codes<S>(stage + (first + i * 8) * K::kPitch, g * K::kPitch + misalignment[i / 2][i % 2], group, read, c,
                      w);
        Integers::words(w, y[i / 2][i % 2], z[i / 2][i % 2], queries.table);
      }
      KV_UNROLL
      for (int i = 0; i < kSteps * Plan::kColumnBlocks; ++i) {
        const int step = i / Plan::kColumnBlocks, n = i % Plan::kColumnBlocks;
        u32 q[Queries<Plan>::kWords];
        queries.get((S::kFirst / 32 + (group * S::kReads + read) * kSteps) * Plan::kColumnBlocks + i, q);
        KV_UNROLL
        for (int sub = 0; sub < Plan::kSubtiles; ++sub) {
          const u32 *const a = y[sub][0] + 2 * step, *const b = y[sub][1] + 2 * step;
          mma_16x8x32<false>(high[sub][n], a[0], b[0], a[1], b[1], q[0], q[1]);
          mma_16x8x32<false>(low[sub][n], a[0], b[0], a[1], b[1], q[2], q[3]);
          if constexpr (Integers::kTerms == 2) {
            const u32 *const d = z[sub][0] + 2 * step, *const e = z[sub][1] + 2 * step;
            mma_16x8x32<true>(low[sub][n], d[0], e[0], d[1], e[1], q[0], q[1]);
          }
        }
      }
    }
    KV_UNROLL
    for (int sub = 0; sub < Plan::kSubtiles; ++sub) {
      float scale[2] = {1.f, 1.f};
      if constexpr (S::kScalesGroups) {
        KV_UNROLL
        for (int i = 0; i < 2; ++i)
          scale[i] = S::scale(scales_of<K, S>(stage, misalignment[sub][i], first + sub * 16 + g + i * 8, group, c), 0);
      }
      KV_UNROLL
      for (int n = 0; n < Plan::kColumnBlocks; ++n) {
        float factor[4];
        gather.factor(factor, scale, n);
        KV_UNROLL
        for (int j = 0; j < 4; ++j)
          s[sub][n][j] =
              float(high[sub][n][j] * 256 + low[sub][n][j]) * factor[j] + gather.before(s[sub], group, 4 * n + j);
      }
    }
  }
}

// x for kSubtiles x 16 tokens of the tile, from row `first` on: scores relative to the reference maximum. scale: what
// Queries::hold() has returned.
template <class Plan>
KV_DEVICE void score(Scores<Plan> (&x)[Plan::kSubtiles], SharedAddress stage, int first,
                     const u32 (&misalignment)[Plan::kSubtiles][2], const Queries<Plan>& queries, Table table,
                     float scale, const Softmax<Plan>& softmax) {
  bool is_done = false;
  DividedKeys<Plan> keys;
  keys.divide(stage, first, misalignment);
  for_each(typename Plan::K::Sections{}, [&](auto section) {
    using S = decltype(section);
    const Gather<Plan, S> gather{scale, queries, softmax};
    if constexpr (Plan::kHasIntegerKeys)
      score_section_of_integers<Plan, S>(x, stage, first, misalignment, queries, gather);
    else
      score_section<Plan, S>(x, stage, first, misalignment, queries, table, gather);
    is_done = gather.kIsDone;
  });
  keys.restore(x);
  if (is_done) return;
  KV_UNROLL
  for (int sub = 0; sub < Plan::kSubtiles; ++sub) apply_rare_units<Plan>(queries, x[sub]);
  KV_UNROLL
  for (int n = 0; n < Plan::kColumnBlocks; ++n) {
    float factor[2];
    queries.units.get(factor, n, scale);
    KV_UNROLL
    for (int i = 0; i < Plan::kSubtiles * 4; ++i) {
      float& s = x[i / 4][n][i % 4];
      s = s * factor[i % 2] - softmax.reference_max[n][i % 2];
    }
  }
}

}  // namespace kv
