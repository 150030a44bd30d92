// Quality (see quality.hpp).
// SPDX-License-Identifier: MIT
#include "tools/quality.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tools/measure.hpp"

namespace kvjit {
namespace {

double relative_mse(std::span<const double> decoded, std::span<const float> x) {
  double error = 0, power = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    error += (decoded[i] - x[i]) * (decoded[i] - x[i]);
    power += double{x[i]} * x[i];
  }
  return power == 0 ? error : error / power;
}

// softmax(logits) V of one query, and the logits: over the original or the decoded rows of one KV head.
template <class Number>
struct Attended {
  std::vector<double> logits, out;

  void compute(std::span<const float> q, const Number* k, const Number* v, std::size_t tokens) {
    const std::size_t dim = q.size();
    const double scale = 1 / std::sqrt(static_cast<double>(dim));
    logits.assign(tokens, 0);
    for (std::size_t t = 0; t < tokens; ++t) {
      for (std::size_t c = 0; c < dim; ++c) logits[t] += double{q[c]} * k[t * dim + c];
      logits[t] *= scale;
    }
    const double largest = *std::max_element(logits.begin(), logits.end());
    double sum = 0;
    out.assign(dim, 0);
    for (std::size_t t = 0; t < tokens; ++t) {
      const double p = std::exp(logits[t] - largest);
      sum += p;
      for (std::size_t c = 0; c < dim; ++c) out[c] += p * v[t * dim + c];
    }
    for (double& x : out) x /= sum;
  }
};

double cosine_of(std::span<const double> a, std::span<const double> b) {
  const double aa = std::inner_product(a.begin(), a.end(), a.begin(), 0.0);
  const double bb = std::inner_product(b.begin(), b.end(), b.begin(), 0.0);
  if (aa == 0 && bb == 0) return 1;
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0) / std::sqrt(aa * bb);
}

}  // namespace

std::string misfit(const StoredSide& side, long long head_dim) {
  const Format& f = side.format;
  const long long rotation = f.rotation.is_identity() ? 1 : f.rotation.size;
  if (head_dim % std::lcm<long long>(f.block, rotation) != 0)
    return fmt::format("head_dim {} is not a multiple of its block {} and rotation {}", head_dim, f.block, rotation);
  if (side.calibration && side.calibration->channels.size() != static_cast<std::size_t>(head_dim))
    return fmt::format("calibration '{}' is of {} channels, head_dim is {}", side.calibration->name,
                       side.calibration->channels.size(), head_dim);
  return "";
}

Result<std::vector<double>> stored_and_back(const StoredSide& side, const Heads& x, double& bits) {
  if (const std::string reason = misfit(side, x.dim); !reason.empty()) return fail(Code::unsupported, reason);
  const int dim = static_cast<int>(x.dim);
  std::vector<float> scaled = x.values;
  const std::vector<double> none;
  const std::vector<double>& scales = side.calibration ? side.calibration->channels : none;
  const auto width = static_cast<std::size_t>(dim);
  if (!scales.empty())
    for (std::size_t i = 0; i < scaled.size(); ++i) scaled[i] *= static_cast<float>(scales[i % width]);
  const std::vector<std::uint8_t> bytes = encode_rows(side.format, scaled, dim);
  bits = 8.0 * static_cast<double>(bytes.size()) / static_cast<double>(x.values.size());
  std::vector<double> decoded = decode_rows(side.format, bytes, dim);
  if (!scales.empty())
    for (std::size_t i = 0; i < decoded.size(); ++i) decoded[i] /= scales[i % width];
  if (!std::all_of(decoded.begin(), decoded.end(), [](double v) { return std::isfinite(v); }))
    return fail(Code::unsupported, fmt::format("the values are too large for {}", side.format.name));
  return decoded;
}

Result<Quality> measure_quality(const Sample& sample, const Pair& pair) {
  Quality quality;
  KV_TRY(k, stored_and_back(pair.k, sample.k, quality.k_bits));
  KV_TRY(v, stored_and_back(pair.v, sample.v, quality.v_bits));
  quality.k_mse = relative_mse(k, sample.k.values);
  quality.v_mse = relative_mse(v, sample.v.values);

  const long long gqa = sample.q.heads / sample.k.heads, queries = sample.q.rows, tokens = sample.k.rows;
  const auto dim = static_cast<std::size_t>(sample.q.dim);
  double logit_squares = 0, logit_errors = 0, out_squares = 0, out_errors = 0, cosines = 0;
  Attended<float> exact;
  Attended<double> stored;
  for (long long row = 0; row < sample.q.heads * queries; ++row) {
    const auto at = static_cast<std::size_t>(row / queries / gqa * tokens) * dim;
    const long long visible = sample.is_causal ? tokens - queries + row % queries + 1 : tokens;
    const auto q = std::span(sample.q.values).subspan(static_cast<std::size_t>(row) * dim, dim);
    exact.compute(q, &sample.k.values[at], &sample.v.values[at], static_cast<std::size_t>(visible));
    stored.compute(q, &k[at], &v[at], static_cast<std::size_t>(visible));
    for (std::size_t t = 0; t < exact.logits.size(); ++t) {
      const double error = stored.logits[t] - exact.logits[t];
      logit_squares += exact.logits[t] * exact.logits[t];
      logit_errors += error * error;
      quality.logit_max = std::max(quality.logit_max, std::fabs(error));
    }
    for (std::size_t c = 0; c < dim; ++c) {
      out_squares += exact.out[c] * exact.out[c];
      out_errors += (stored.out[c] - exact.out[c]) * (stored.out[c] - exact.out[c]);
    }
    cosines += cosine_of(stored.out, exact.out);
  }
  quality.logit_error = std::sqrt(logit_squares == 0 ? logit_errors : logit_errors / logit_squares);
  quality.output_error = std::sqrt(out_squares == 0 ? out_errors : out_errors / out_squares);
  quality.cosine = cosines / static_cast<double>(sample.q.heads * queries);
  return quality;
}

}  // namespace kvjit
