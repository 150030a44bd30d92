// Measures: attention in double precision, the distance between two outputs, and seeded inputs like real
// keys. The oracle shares no code with the kernels; it is what `run` and `verify` judge them by.
// SPDX-License-Identifier: MIT
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "generator/formats/format.hpp"
#include "tools/verify/feature_inputs.hpp"

namespace kvjit {

struct AttentionShape {  // of one sequence
  int kv_heads = 1, q_heads_per_kv = 1, query_length = 1, head_dim = 0;
  long long tokens = 0;    // that count
  long long capacity = 0;  // tokens that lie in memory; 0: the same
  bool causal = false;
  int head_dim_v = 0;               // of V and the output; 0: head_dim
  const ScoreRule* rule = nullptr;  // of features; it says which tokens are seen, too
  double scale = 0;                 // 0: 1/sqrt(head_dim)
  int value_dim() const { return head_dim_v > 0 ? head_dim_v : head_dim; }
};

// q [q_heads][query_length][head_dim], k and v [kv_heads][capacity][head_dim, value_dim()] -> out
// [q_heads][query_length] [value_dim()]. The last query sees every token; causal: query i sees tokens 0 .. tokens -
// query_length + i. A query that sees nothing gets zeros. lse: of each row, if given: the logarithm of the sum of
// exp(score), sinks included.
std::vector<double> exact_attention(const AttentionShape& shape, std::span<const double> q, std::span<const double> k,
                                    std::span<const double> v, std::vector<double>* lse = nullptr);

// What leaving out V of tokens below sparse_v times the largest probability may cost at most, of each row: the sum of
// their weights times the lengths of their V. As a share of |exact|, like a relative error. 0 for sparse_v 0.
double sparse_bound(const AttentionShape& shape, double sparse_v, std::span<const double> q, std::span<const double> k,
                    std::span<const double> v, std::span<const double> exact);

// What rounding queries and keys to halves changes of the output, to first order: each product of a score is off by
// 2^-12 twice (the root mean square; a half has 11 bits), which moves a row by p_t (v_t - o) times the error of score
// t. A standard deviation, as a share of |exact|.
double rounding_deviation(const AttentionShape& shape, std::span<const double> q, std::span<const double> k,
                          std::span<const double> v, std::span<const double> exact);

struct Difference {
  double relative_l2 = 0;  // |a - b| / |b|
  double cosine = 0;       // mean over rows of `dim`
};
Difference difference(std::span<const float> a, std::span<const double> b, int dim);

// Bytes in which two arrays of stored rows differ, by what they are. Neither padding is compared nor the signs of a
// residual that no decoder reads: that of the value which sets an amax scale hangs on the last bit of a float.
struct ByteAgreement {
  long long code_bytes = 0, scale_bytes = 0, code_differs = 0, scale_differs = 0;
};
ByteAgreement compare_rows(const Format& format, std::span<const std::uint8_t> a, std::span<const std::uint8_t> b);

// Do the quantize kernels store exactly the reference codec's bytes? Not where norms are summed or values rotated:
// float32 in the kernels, double in the codec. A scale or a code next to a bound may then be rounded to the other side.
bool is_byte_exact(const Format& format);

// Rows of head_dim values through the reference codec. tensor_scale: of formats with one scale for the whole tensor.
std::vector<std::uint8_t> encode_rows(const Format& format, std::span<const float> x, int head_dim,
                                      float tensor_scale = 1);
std::vector<double> decode_rows(const Format& format, std::span<const std::uint8_t> bytes, int head_dim,
                                float tensor_scale = 1);

// Heavy-tailed numbers, rounded to f16, with one channel five times as large as the rest: what RoPE'd keys
// look like.
std::vector<float> heavy_tailed(std::uint64_t seed, std::size_t count, int head_dim);

inline std::vector<double> widened(std::span<const float> x) { return {x.begin(), x.end()}; }

}  // namespace kvjit
