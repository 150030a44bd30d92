// The measures by which `run`, `verify` and the fuzz judge kernels: attention in double precision (exact_attention),
// the distance of two outputs (difference), bytes that differ between two encodings (compare_rows), bounds of the
// errors of sparse V and of rounding, and seeded inputs distributed like real keys. Nothing here shares code with the
// kernels.
// SPDX-License-Identifier: MIT
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "generator/formats/format.hpp"
#include "tools/verify/feature_inputs.hpp"

namespace kvjit {

// The sizes and rules of attention over one sequence.
struct ExactShape {
  int kv_heads = 1;
  int q_heads_per_kv = 1;
  int query_length = 1;             // queries of the sequence
  int head_dim = 0;                 // channels of K and of the queries
  long long tokens = 0;             // tokens that are attended to
  long long capacity = 0;           // tokens between two heads in memory; 0: `tokens`
  bool causal = false;              // ignored if there is a `rule`, which decides what queries see
  int head_dim_v = 0;               // channels of V and the output; 0: head_dim
  const ScoreRule* rule = nullptr;  // scores with features, and the tokens that queries see; null: no features
  double scale = 0;                 // factor of q.k; 0: 1/sqrt(head_dim)
  int value_dim() const { return head_dim_v > 0 ? head_dim_v : head_dim; }
};

// Attention of one sequence. q is [q_heads][query_length][head_dim], k [kv_heads][capacity][head_dim], v
// [kv_heads][capacity][value_dim()]; returns [q_heads][query_length][value_dim()]. With causal, query i sees the tokens
// 0 .. tokens - query_length + i; otherwise every query sees every token. A query that sees no token gets zeros.
// lse, if not null, gets the log-sum-exp of each row's scores, with the sink.
std::vector<double> exact_attention(const ExactShape& shape, std::span<const double> q, std::span<const double> k,
                                    std::span<const double> v, std::vector<double>* lse = nullptr);

// Upper bound of the error that sparse_v causes: the kernel skips V of tokens whose probability is below sparse_v times
// the row's largest. The error of a row is at most the sum of weight x |V| of these tokens. The bound is relative to
// |exact|, like relative_l2; it is 0 for sparse_v 0.
double sparse_bound(const ExactShape& shape, double sparse_v, std::span<const double> q, std::span<const double> k,
                    std::span<const double> v, std::span<const double> exact);

// Standard deviation of the output, relative to |exact|, if queries and keys are rounded to f16; to first order. A
// product of a score has two relative errors of 2^-12 (root mean square; f16 has 11 bits), and an error e of score t
// moves the row's output o by e p_t (v_t - o).
double rounding_deviation(const ExactShape& shape, std::span<const double> q, std::span<const double> k,
                          std::span<const double> v, std::span<const double> exact);

// What the error of one query row may be, in the units of the output.
struct RowAllowance {
  double sparse = 0;    // by sparse_v, as sparse_bound has it
  double rounding = 0;  // three standard deviations of rounding queries, keys, values and weights to f16
};
// Allowances of the rows of a set. Rounding is to first order where it moves scores by little, as rounding_deviation
// has it. Where it moves scores by more, every weight may change by the exponential of that. Weights below the least
// normal number of f16 have its absolute error.
std::vector<RowAllowance> row_allowances(const ExactShape& shape, double sparse_v, std::span<const double> q,
                                         std::span<const double> k, std::span<const double> v,
                                         std::span<const double> exact, const std::vector<bool>& rows);

// Upper bound of the scores of each query row: |q| times the largest |k|, times the scale. Rounding q or k to f16 moves
// a score, and with it lse, by up to 2^-11 of the bound.
std::vector<double> largest_scores(const ExactShape& shape, std::span<const double> q, std::span<const double> k);

struct Difference {
  double relative_l2 = 0;  // |a - b| / |b|; |a - b| if b is zero
  double cosine = 0;       // mean of the cosines of the rows
};
// The distance of a from b, two arrays of rows of `dim` numbers.
Difference difference(std::span<const float> a, std::span<const double> b, int dim);

// |a - b| and |b| of each row of `width` numbers.
std::vector<double> row_errors(std::span<const float> a, std::span<const double> b, std::size_t width);
std::vector<double> row_norms(std::span<const double> b, std::size_t width);

// Bytes in which two arrays of stored rows differ, counted separately for codes and scales. Padding is not compared.
// Signs of a residual that no decoder reads are not compared either: the sign of the value that sets an amax scale
// depends on the last bit of a float.
struct ByteAgreement {
  long long code_bytes = 0;     // bytes of codes that were compared
  long long scale_bytes = 0;    // bytes of scales and other fields that were compared
  long long code_differs = 0;   // bytes of codes that differ
  long long scale_differs = 0;  // bytes of scales and other fields that differ
};
ByteAgreement compare_rows(const Format& format, std::span<const std::uint8_t> a, std::span<const std::uint8_t> b);

// True if the quantize kernels must store exactly the reference codec's bytes. False if scales come from sums (norms,
// matched and least-squares scales) or values are rotated: kernels compute these in float32, the codec in double, so a
// scale or a code next to a rounding boundary may be rounded to the other side. False, too, if the sums of squared
// errors choose between divisors: kernels add them in the order of their lanes, so near ties may go to the other one.
bool is_byte_exact(const Format& format);

// The most bytes of appended rows that may differ from those of quantize, if `bytes` were appended. Append stores a
// row by a kernel other than the one that quantize may launch for many rows. The two add up a rotation in different
// orders, so a code next to a rounding boundary may be rounded to the other side (measured: 1.5e-5 of the codes).
long long allowed_append_bytes(const Format& format, long long bytes);

// The caller's scales for rows [sequences][heads][tokens], which some formats have: one for the whole tensor, and one
// for each head.
struct RowScales {
  float tensor = 1;
  std::vector<float> heads = {};  // empty: 1
  long long tokens = 1;
  float of_row(std::size_t row) const {
    return heads.empty() ? tensor : tensor * heads[row / static_cast<std::size_t>(tokens) % heads.size()];
  }
};

// Returns different scales for the heads of a format that has one for each, and else none.
std::vector<float> varied_head_scales(const Format& format, int heads);

// Encodes and decodes rows of head_dim values by the reference codec.
std::vector<std::uint8_t> encode_rows(const Format& format, std::span<const float> x, int head_dim,
                                      const RowScales& scales = {});
std::vector<double> decode_rows(const Format& format, std::span<const std::uint8_t> bytes, int head_dim,
                                const RowScales& scales = {});

// Heavy-tailed numbers that f16 holds exactly. One channel is five times as large as the rest, as in keys after RoPE.
std::vector<float> heavy_tailed(std::uint64_t seed, std::size_t count, int head_dim);

inline std::vector<double> widened(std::span<const float> x) { return {x.begin(), x.end()}; }

}  // namespace kvjit
