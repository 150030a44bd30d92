// Lists K/V formats and measures them: see quality.hpp.
// SPDX-License-Identifier: MIT
#include "tools/quality/quality.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "generator/catalogue/side_format.hpp"
#include "generator/formats/e8.hpp"
#include "tools/verify/measure.hpp"

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

// Attention of one query over the original or the decoded rows of one KV head.
template <class Number>
struct Attended {
  std::vector<double> logits;  // of each token
  std::vector<double> out;     // softmax(logits) V

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

// Fails if a name or a number of a side is wrong. A head_dim that does not fit the format becomes the side's error
// instead.
Result<StoredSide> side_of(const SideSpec& side, const Spec& spec, const std::string& key, const Registry& registry) {
  StoredSide stored;
  if (side.format.empty()) {
    KV_TRY(format, inline_format(side, registry));
    stored.name = format.name;
  } else {
    KV_TRY(format, registry.format(side.format, spec.where(key + ".format")));
    stored.name = format->name;
  }
  if (side.calibration) {
    KV_CHECK(registry.calibration(*side.calibration, spec.where(key + ".calibration")));
    stored.name += "_" + *side.calibration;
  }
  stored.format = resolve_side(side, spec, key, registry);
  return stored;
}

// The largest magnitude that a code stands for if the scale is 1.
double largest_code(const Section& codes) {
  switch (codes.kind) {
    case CodeKind::plain:
      return codes.element == Element::e4m3   ? 448
             : codes.element == Element::e5m2 ? 57344
             : codes.is_bias15()              ? 1.75
             : codes.element == Element::f16  ? 65504
                                              : std::numeric_limits<float>::max();
    case CodeKind::uniform:
      return codes.max_code - codes.offset;
    case CodeKind::vector:
      return kE8MostEntry * codes.values.back();
    case CodeKind::table:
      return std::max(-*std::min_element(codes.values.begin(), codes.values.end()),
                      *std::max_element(codes.values.begin(), codes.values.end()));
  }
  return 1;
}

}  // namespace

Result<std::vector<KvFormats>> kv_formats_of(const std::vector<Spec>& specs, const std::vector<std::string>& names,
                                             int head_dim, const Registry& registry) {
  std::vector<KvFormats> combinations;
  const auto add = [&](KvFormats formats) {
    const auto is_same = [&](const KvFormats& other) { return other.name() == formats.name(); };
    if (std::none_of(combinations.begin(), combinations.end(), is_same)) combinations.push_back(std::move(formats));
  };
  for (const Spec& spec : specs) {
    KV_TRY(k, side_of(spec.k, spec, "k", registry));
    KV_TRY(v, side_of(spec.v, spec, "v", registry));
    add({k, v});
  }
  std::vector<std::string> wanted = names;
  if (std::count(names.begin(), names.end(), "all") != 0) {
    wanted.clear();
    for (const auto& [name, format] : registry.formats()) wanted.push_back(name);
  }
  for (const std::string& name : wanted) {
    KV_TRY(format, registry.format(name, {}));
    const StoredSide side{format->name, registry.format_for(name, head_dim, {})};
    add({side, side});
  }
  return combinations;
}

float tensor_scale_for(const Format& format, const KvqFile& x) {
  const auto dim = static_cast<std::size_t>(x.dim);
  double largest = 0;
  std::vector<double> row;
  for (std::size_t at = 0; at < x.values.size(); at += dim) {
    row.assign(x.values.begin() + static_cast<std::ptrdiff_t>(at),
               x.values.begin() + static_cast<std::ptrdiff_t>(at + dim));
    for (std::size_t c = 0; c < format.channels.size(); ++c) row[c] *= format.channels[c];
    row.resize(static_cast<std::size_t>(format.stored_dim(static_cast<int>(x.dim))), 0.0);
    rotate_forward(format.rotation, row.data(), static_cast<int>(row.size()));
    for (const double v : row) largest = std::max(largest, std::fabs(v));
  }
  // A scale over scales brings the largest scale to the largest number of E4M3.
  const double most = largest_code(format.codes()) * (format.scale.over_tensor ? 448 : 1);
  return largest > 0 ? static_cast<float>(largest / most) : 1;
}

Result<Stored> stored_and_back(const Format& format, const KvqFile& x) {
  const int dim = static_cast<int>(x.dim);
  Stored stored;
  if (format.has_tensor_scale()) stored.tensor_scale = tensor_scale_for(format, x);
  const float scale = stored.tensor_scale > 0 ? stored.tensor_scale : 1;
  const std::vector<std::uint8_t> bytes = encode_rows(format, x.values, dim, {scale});
  stored.bits = 8.0 * static_cast<double>(bytes.size()) / static_cast<double>(x.values.size());
  stored.decoded = decode_rows(format, bytes, dim, {scale});
  if (!std::all_of(stored.decoded.begin(), stored.decoded.end(), [](double v) { return std::isfinite(v); }))
    return fail(Code::unsupported, fmt::format("the values are too large for {}", format.name));
  return stored;
}

Result<Quality> measure_quality(const Sample& sample, const KvFormats& formats) {
  Quality quality;
  KV_TRY(k_format, formats.k.format);
  KV_TRY(v_format, formats.v.format);
  KV_TRY(stored_k, stored_and_back(k_format, sample.k));
  KV_TRY(stored_v, stored_and_back(v_format, sample.v));
  const std::vector<double>&k = stored_k.decoded, &v = stored_v.decoded;
  quality.k_bits = stored_k.bits, quality.v_bits = stored_v.bits;
  quality.k_scale = stored_k.tensor_scale, quality.v_scale = stored_v.tensor_scale;
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
