// Reads samples from files and generates them: see samples.hpp.
// SPDX-License-Identifier: MIT
#include "tools/quality/samples.hpp"

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <numbers>

#include "generator/formats/reference_codec.hpp"

namespace kvjit {
namespace {

constexpr int kKvHeads = 2;
constexpr int kQueryHeads = 8;
constexpr int kTokens = 512;
constexpr int kQueries = 16;         // queries of a query head
constexpr int kOutlierChannels = 4;  // outlier channels of a head
constexpr double kOutlier = 10;      // factor of these channels

// Random numbers by splitmix64 (Steele, Lea, Flood 2014) and Box-Muller, because the distributions of <random> differ
// between standard libraries.
class Draws {
 public:
  explicit Draws(std::uint64_t seed) : state_(seed) {}
  double uniform() {  // in (0, 1)
    std::uint64_t z = state_ += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return (static_cast<double>((z ^ z >> 31) >> 11) + 0.5) * 0x1p-53;
  }
  double normal() {
    const double radius = std::sqrt(-2 * std::log(uniform()));
    return radius * std::cos(2 * std::numbers::pi * uniform());
  }
  // Student's t with 4 degrees of freedom, divided by sqrt(2) because its variance is 2. Chi squared with 4 degrees of
  // freedom is -2 ln(u1 u2).
  double student() {
    const double chi_squared = -2 * std::log(uniform()) - 2 * std::log(uniform());
    return normal() / std::sqrt(chi_squared / 4) / std::numbers::sqrt2;
  }

 private:
  std::uint64_t state_;
};

template <class Draw>
KvqFile drawn(int heads, int rows, int dim, Draw draw) {
  KvqFile x{heads, rows, dim, {}};
  x.values.reserve(static_cast<std::size_t>(heads * rows * dim));
  for (int i = 0; i < heads * rows * dim; ++i)
    x.values.push_back(float_from_f16(f16_from_float(static_cast<float>(draw(i % dim)))));
  return x;
}

}  // namespace

std::vector<Sample> generated_samples(int head_dim) {
  std::vector<Sample> samples;
  const auto add = [&](const char* name, const char* description, auto draw) {
    Draws draws(samples.size() + 1);
    const auto next = [&](int channel) { return draw(draws, channel); };
    Sample sample{name, description, {}, {}, {}, false};
    sample.k = drawn(kKvHeads, kTokens, head_dim, next);
    sample.v = drawn(kKvHeads, kTokens, head_dim, next);
    sample.q = drawn(kQueryHeads, kQueries, head_dim, [&](int) { return draws.normal(); });
    samples.push_back(std::move(sample));
  };
  add("gaussian", "independent N(0,1) numbers", [](Draws& d, int) { return d.normal(); });
  add("heavy_tailed", "independent Student t numbers, 4 degrees of freedom, unit variance",
      [](Draws& d, int) { return d.student(); });
  // The outlier channels are spread over the head, so that no block and no half of a head holds all of them.
  const int stride = head_dim / kOutlierChannels;
  add("outlier_channels", "N(0,1) numbers, 4 channels of K and V ten times as large", [&](Draws& d, int channel) {
    return d.normal() * (channel % stride == stride / 3 && channel / stride < kOutlierChannels ? kOutlier : 1);
  });
  return samples;
}

Result<Sample> read_sample(const std::string& k_file, const std::string& v_file, const std::string& q_file,
                           long long queries, bool is_causal) {
  Sample s;
  KV_TRY(k, read_kvq(k_file, "K [kv_heads, tokens, head_dim]"));
  KV_TRY(v, read_kvq(v_file, "V [kv_heads, tokens, head_dim]"));
  KV_TRY(q, read_kvq(q_file, "Q [q_heads, queries, head_dim]"));
  KV_CHECK(expect_shape(v_file, v, k.heads, k.rows, k.dim, "V has the heads and tokens of K"));
  if (v.rows != k.rows)
    return fail(Code::bad_input, fmt::format("{} has {} tokens, {} has {}", k_file, k.rows, v_file, v.rows));
  KV_CHECK(expect_shape(q_file, q, 0, queries, k.dim, "Q has the head_dim of K, and at least --queries rows a head"));
  if (q.heads % k.heads != 0)
    return fail(Code::bad_input, fmt::format("{}: has {} heads, not a multiple of the {} KV heads of {}", q_file,
                                             q.heads, k.heads, k_file));
  if (queries > 0) q = {q.heads, queries, q.dim, q.last(queries)};
  if (is_causal && q.rows > k.rows)
    return fail(Code::bad_input, fmt::format("{}: {} causal queries, but only {} tokens", q_file, q.rows, k.rows));
  s.name = std::filesystem::path(k_file).filename().string();
  s.description = fmt::format("{} tokens, {} KV heads, {} query heads, {} queries, head_dim {}{}", k.rows, k.heads,
                              q.heads, q.rows, k.dim, is_causal ? ", causal" : "");
  s.k = std::move(k);
  s.v = std::move(v);
  s.q = std::move(q);
  s.is_causal = is_causal;
  return s;
}

}  // namespace kvjit
