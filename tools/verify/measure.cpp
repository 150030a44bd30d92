// Computes attention in double precision, distances and seeded inputs: see measure.hpp.
// SPDX-License-Identifier: MIT
#include "tools/verify/measure.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>

#include "generator/formats/reference_codec.hpp"

namespace kvjit {

namespace {

// A dot product over four independent sums, so that no addition waits for the one before.
double dot(const double* a, const double* b, std::size_t count) {
  double sums[4] = {};
  std::size_t i = 0;
  for (; i + 4 <= count; i += 4)
    for (std::size_t j = 0; j < 4; ++j) sums[j] += a[i + j] * b[i + j];
  for (; i < count; ++i) sums[0] += a[i] * b[i];
  return sums[0] + sums[1] + (sums[2] + sums[3]);
}

// Computes the softmax of every query row that sees a token or has a sink. Calls visit(row, first row of its head in K
// and V, weight of each token, lse). chosen: only these rows; null: all.
template <class Visit>
void for_each_softmax(const ExactShape& shape, std::span<const double> q, std::span<const double> k, Visit visit,
                      const std::vector<bool>* chosen = nullptr) {
  const auto dim = static_cast<std::size_t>(shape.head_dim);
  const auto capacity = static_cast<std::size_t>(shape.capacity ? shape.capacity : shape.tokens);
  const double scale = shape.scale != 0 ? shape.scale : 1 / std::sqrt(static_cast<double>(dim));
  std::vector<double> p;
  const std::size_t rows = q.size() / dim, queries = static_cast<std::size_t>(shape.query_length);
  for (std::size_t row = 0; row < rows; ++row) {
    if (chosen && !(*chosen)[row]) continue;
    const std::size_t first = row / queries / static_cast<std::size_t>(shape.q_heads_per_kv) * capacity;
    const auto query = static_cast<long long>(row % queries);
    const bool is_cut = shape.causal && !shape.rule;
    const long long visible = is_cut ? shape.tokens - shape.query_length + query + 1 : shape.tokens;
    const auto head = static_cast<int>(row / queries);
    p.assign(static_cast<std::size_t>(std::max(visible, 0LL)), 0.0);
    for (std::size_t t = 0; t < p.size(); ++t) {
      p[t] = scale * dot(&q[row * dim], &k[(first + t) * dim], dim);
      if (shape.rule) p[t] = shape.rule->score(head, static_cast<int>(query), static_cast<long long>(t), p[t]);
    }
    const double sink = shape.rule ? shape.rule->sink(head) : -std::numeric_limits<double>::infinity();
    const double largest = std::accumulate(p.begin(), p.end(), sink, [](double a, double b) { return std::max(a, b); });
    if (largest == -std::numeric_limits<double>::infinity()) continue;
    double sum = std::exp(sink - largest);
    for (double& x : p) sum += x = std::exp(x - largest);
    for (double& x : p) x /= sum;
    visit(row, first, p, largest + std::log(sum));
  }
}

}  // namespace

std::vector<double> exact_attention(const ExactShape& shape, std::span<const double> q, std::span<const double> k,
                                    std::span<const double> v, std::vector<double>* lse) {
  const auto dim = static_cast<std::size_t>(shape.value_dim());
  const std::size_t rows = q.size() / static_cast<std::size_t>(shape.head_dim);
  std::vector<double> out(rows * dim, 0.0);
  if (lse) lse->assign(rows, -std::numeric_limits<double>::infinity());
  for_each_softmax(shape, q, k, [&](std::size_t row, std::size_t first, const std::vector<double>& p, double sum) {
    if (lse) (*lse)[row] = sum;
    for (std::size_t t = 0; t < p.size(); ++t)
      for (std::size_t c = 0; c < dim; ++c) out[row * dim + c] += p[t] * v[(first + t) * dim + c];
  });
  return out;
}

double sparse_bound(const ExactShape& shape, double sparse_v, std::span<const double> q, std::span<const double> k,
                    std::span<const double> v, std::span<const double> exact) {
  if (sparse_v == 0) return 0;
  const auto dim = static_cast<std::size_t>(shape.value_dim());
  double error = 0, norm = 0;
  for_each_softmax(shape, q, k, [&](std::size_t, std::size_t first, const std::vector<double>& p, double) {
    if (p.empty()) return;
    const double least = sparse_v * *std::max_element(p.begin(), p.end());
    double bound = 0;
    for (std::size_t t = 0; t < p.size(); ++t) {
      if (p[t] >= least) continue;
      double square = 0;
      for (std::size_t c = 0; c < dim; ++c) square += v[(first + t) * dim + c] * v[(first + t) * dim + c];
      bound += p[t] * std::sqrt(square);
    }
    error += bound * bound;
  });
  for (const double x : exact) norm += x * x;
  return norm == 0 ? std::sqrt(error) : std::sqrt(error / norm);
}

double rounding_deviation(const ExactShape& shape, std::span<const double> q, std::span<const double> k,
                          std::span<const double> v, std::span<const double> exact) {
  const auto dim = static_cast<std::size_t>(shape.head_dim), width = static_cast<std::size_t>(shape.value_dim());
  const double scale = shape.scale != 0 ? shape.scale : 1 / std::sqrt(static_cast<double>(dim));
  double error = 0, norm = 0;
  for_each_softmax(shape, q, k, [&](std::size_t row, std::size_t first, const std::vector<double>& p, double) {
    const double* const query = &q[row * dim];
    for (std::size_t t = 0; t < p.size(); ++t) {
      const double* const key = &k[(first + t) * dim];
      double products = 0, moved = 0;
      for (std::size_t i = 0; i < dim; ++i) products += query[i] * query[i] * key[i] * key[i];
      // In the rotated domain all channels contribute about equally to the sum.
      products = std::max(products, dot(query, query, dim) * dot(key, key, dim) / static_cast<double>(dim));
      for (std::size_t c = 0; c < width; ++c) {
        const double away = v[(first + t) * width + c] - exact[row * width + c];
        moved += away * away;
      }
      error += p[t] * p[t] * moved * 2 * 0x1p-24 * scale * scale * products;
    }
  });
  for (const double x : exact) norm += x * x;
  return norm == 0 ? 0 : std::sqrt(error / norm);
}

std::vector<RowAllowance> row_allowances(const ExactShape& shape, double sparse_v, std::span<const double> q,
                                         std::span<const double> k, std::span<const double> v,
                                         std::span<const double> exact, const std::vector<bool>& rows) {
  constexpr double kDeviations = 3, kMostExponent = 60, kHalfVariance = 0x1p-24, kLeastWeight = 0x1p-25;
  constexpr double kSmallMove = 0.3;  // of a score; above, the exponential is taken
  const auto dim = static_cast<std::size_t>(shape.head_dim), width = static_cast<std::size_t>(shape.value_dim());
  const double scale = shape.scale != 0 ? shape.scale : 1 / std::sqrt(static_cast<double>(dim));
  std::vector<RowAllowance> all(rows.size());
  std::vector<double> moves, sizes, distances;
  const auto visit = [&](std::size_t row, std::size_t first, const std::vector<double>& p, double) {
    const double* const query = &q[row * dim];
    const double largest = p.empty() ? 0 : *std::max_element(p.begin(), p.end());
    double sparse = 0, linear = 0, products = 0, sum = 0, largest_move = 0;
    moves.assign(p.size(), 0), sizes.assign(p.size(), 0), distances.assign(p.size(), 0);
    for (std::size_t t = 0; t < p.size(); ++t) {
      if (p[t] == 0) continue;
      const double *const key = &k[(first + t) * dim], *const value = &v[(first + t) * width];
      double product = 0, square = 0, away = 0;
      for (std::size_t i = 0; i < dim; ++i) product += query[i] * query[i] * key[i] * key[i];
      // In the rotated domain all channels contribute about equally to the sum.
      product = std::max(product, dot(query, query, dim) * dot(key, key, dim) / static_cast<double>(dim));
      for (std::size_t c = 0; c < width; ++c) {
        const double off = value[c] - exact[row * width + c];
        square += value[c] * value[c], away += off * off;
      }
      moves[t] = kDeviations * std::sqrt(2 * kHalfVariance * product) * scale;
      sizes[t] = std::sqrt(square), distances[t] = std::sqrt(away);
      largest_move = std::max(largest_move, moves[t]);
      linear += p[t] * p[t] * away * moves[t] * moves[t];
      products += kDeviations * kDeviations * 2 * kHalfVariance * p[t] * p[t] * square;
      sum += square;
      if (p[t] < sparse_v * largest) sparse += p[t] * sizes[t];
    }
    double moved = std::sqrt(linear);
    if (largest_move > kSmallMove) {
      moved = 0;
      for (std::size_t t = 0; t < p.size(); ++t)
        moved += std::min(p[t] * std::expm1(std::min(moves[t] + largest_move, kMostExponent)), 1.0) * distances[t];
    }
    all[row] = {sparse, moved + std::sqrt(products) + kLeastWeight * largest * std::sqrt(sum)};
  };
  for_each_softmax(shape, q, k, visit, &rows);
  return all;
}

std::vector<double> largest_scores(const ExactShape& shape, std::span<const double> q, std::span<const double> k) {
  const auto dim = static_cast<std::size_t>(shape.head_dim);
  const auto capacity = static_cast<std::size_t>(shape.capacity > 0 ? shape.capacity : shape.tokens),
             head_rows = static_cast<std::size_t>(shape.q_heads_per_kv * shape.query_length);
  const double scale = shape.scale != 0 ? shape.scale : 1 / std::sqrt(static_cast<double>(dim));
  const auto square = [&](const double* x) { return dot(x, x, dim); };
  std::vector<double> all;
  for (std::size_t head = 0; head < static_cast<std::size_t>(shape.kv_heads); ++head) {
    double longest = 0;
    for (std::size_t t = 0; t < static_cast<std::size_t>(shape.tokens); ++t)
      longest = std::max(longest, square(&k[(head * capacity + t) * dim]));
    for (std::size_t i = 0; i < head_rows; ++i)
      all.push_back(std::sqrt(square(&q[(head * head_rows + i) * dim])) * std::sqrt(longest) * scale);
  }
  return all;
}

std::vector<double> row_errors(std::span<const float> a, std::span<const double> b, std::size_t width) {
  std::vector<double> errors;
  for (std::size_t at = 0; at < b.size(); at += width) {
    double square = 0;
    for (std::size_t i = at; i < at + width; ++i) square += (a[i] - b[i]) * (a[i] - b[i]);
    errors.push_back(std::sqrt(square));
  }
  return errors;
}

std::vector<double> row_norms(std::span<const double> b, std::size_t width) {
  std::vector<double> norms;
  for (std::size_t at = 0; at < b.size(); at += width) norms.push_back(std::sqrt(dot(&b[at], &b[at], width)));
  return norms;
}

Difference difference(std::span<const float> a, std::span<const double> b, int dim) {
  double error = 0, norm = 0, cosines = 0;
  const std::size_t width = static_cast<std::size_t>(dim), rows = b.size() / width;
  for (std::size_t row = 0; row < rows; ++row) {
    double aa = 0, bb = 0, ab = 0;
    for (std::size_t i = row * width; i < (row + 1) * width; ++i) {
      aa += double{a[i]} * a[i];
      bb += b[i] * b[i];
      ab += a[i] * b[i];
      error += (a[i] - b[i]) * (a[i] - b[i]);
    }
    norm += bb;
    // A row of zeros has no direction: it agrees with another one, and with nothing else. The roots are taken apart,
    // because a product of two squares of small numbers is 0.
    cosines += aa == 0 || bb == 0 ? (aa == bb ? 1 : 0) : ab / (std::sqrt(aa) * std::sqrt(bb));
  }
  return {norm == 0 ? std::sqrt(error) : std::sqrt(error / norm), cosines / static_cast<double>(rows)};
}

ByteAgreement compare_rows(const Format& format, std::span<const std::uint8_t> a, std::span<const std::uint8_t> b) {
  ByteAgreement agreement;
  const auto block = static_cast<std::size_t>(format.block_bytes);
  for (std::size_t at = 0; at + block <= b.size(); at += block)
    for (const Field& field : format.fields) {
      if (field.kind == FieldKind::pad || field.kind == FieldKind::residual_signs || field.kind == FieldKind::foreign)
        continue;
      long long differs = 0;
      for (int i = field.at; i < field.at + field.bytes; ++i)
        differs += a[at + static_cast<std::size_t>(i)] != b[at + static_cast<std::size_t>(i)];
      const bool is_code = field.is_code();
      (is_code ? agreement.code_bytes : agreement.scale_bytes) += field.bytes;
      (is_code ? agreement.code_differs : agreement.scale_differs) += differs;
    }
  return agreement;
}

bool is_byte_exact(const Format& format) {
  for (const Segment& segment : format.segments)
    if (!is_byte_exact(segment.format)) return false;
  return format.scale.rule != ScaleRule::norm && format.rotation.is_identity() &&
         format.scale.refine != Refine::matched && format.scale.refine != Refine::least_squares &&
         format.scale.search.empty();
}

long long allowed_append_bytes(const Format& format, long long bytes) {
  constexpr long long kLeast = 2, kBytesPerDifference = 10'000;
  return is_byte_exact(format) ? 0 : kLeast + bytes / kBytesPerDifference;
}

std::vector<float> varied_head_scales(const Format& format, int heads) {
  std::vector<float> scales;
  for (int head = 0; head < heads && format.has_head_scales(); ++head)
    scales.push_back(std::array{0.75f, 0.031f, 2.5f}[static_cast<std::size_t>(head % 3)]);
  return scales;
}

std::vector<std::uint8_t> encode_rows(const Format& format, std::span<const float> x, int head_dim,
                                      const RowScales& scales) {
  const auto dim = static_cast<std::size_t>(head_dim);
  std::vector<std::uint8_t> bytes;
  bytes.reserve(x.size() / dim * static_cast<std::size_t>(format.head_bytes(head_dim)));
  for (std::size_t at = 0; at < x.size(); at += dim) {
    const auto row = encode_row(format, x.subspan(at, dim), scales.of_row(at / dim));
    bytes.insert(bytes.end(), row.begin(), row.end());
  }
  return bytes;
}

std::vector<double> decode_rows(const Format& format, std::span<const std::uint8_t> bytes, int head_dim,
                                const RowScales& scales) {
  const auto row_bytes = static_cast<std::size_t>(format.head_bytes(head_dim));
  std::vector<double> values;
  values.reserve(bytes.size() / row_bytes * static_cast<std::size_t>(head_dim));
  for (std::size_t at = 0; at < bytes.size(); at += row_bytes) {
    const auto row = decode_row(format, bytes.subspan(at, row_bytes), head_dim, false, scales.of_row(at / row_bytes));
    values.insert(values.end(), row.begin(), row.end());
  }
  return values;
}

std::vector<float> heavy_tailed(std::uint64_t seed, std::size_t count, int head_dim) {
  // splitmix64 and Box-Muller give the same numbers with every standard library.
  std::uint64_t state = seed * 0x9E3779B97F4A7C15ull + 1;
  const auto uniform = [&state] {
    std::uint64_t z = state += 0x9E3779B97F4A7C15ull;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ z >> 27) * 0x94D049BB133111EBull;
    return (static_cast<double>((z ^ z >> 31) >> 11) + 0.5) * 0x1p-53;
  };
  const auto normal = [&uniform] {
    const double radius = std::sqrt(-2 * std::log(uniform()));
    return radius * std::cos(2 * std::numbers::pi * uniform());
  };
  std::vector<float> x(count);
  for (std::size_t i = 0; i < count; ++i) {
    const double outlier = i % static_cast<std::size_t>(head_dim) == static_cast<std::size_t>(head_dim / 3) ? 5 : 1;
    const double body = normal();
    x[i] = float_from_f16(f16_from_float(static_cast<float>(outlier * body * std::exp(0.5 * normal()))));
  }
  return x;
}

}  // namespace kvjit
