// tools/verify/measure.cpp: the command judges kernels by its own measures, which are checked here against the tests'
// oracle and against cases solved by hand.
// SPDX-License-Identifier: MIT
#include "tools/verify/measure.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "generator/catalogue/registry.hpp"
#include "tests/support/oracle.hpp"
#include "tests/support/rng.hpp"
#include "tools/verify/harness.hpp"
#include "tools/verify/judge.hpp"

namespace kvjit {
namespace {

TEST_CASE("attention in double agrees with the tests' oracle") {
  for (const bool is_causal : {false, true})
    for (const int tokens : {1, 2, 9}) {
      test::Rng rng(5);
      const int capacity = 9, dim = 8, queries = 3;
      const auto q = widened(rng.normals(4 * queries * dim)), k = widened(rng.normals(2 * capacity * dim)),
                 v = widened(rng.normals(2 * capacity * dim));
      std::vector<double> short_k, short_v;
      for (int head : {0, 1})
        for (int i = 0; i < tokens * dim; ++i) {
          short_k.push_back(k[std::size_t(head * capacity * dim + i)]);
          short_v.push_back(v[std::size_t(head * capacity * dim + i)]);
        }
      const auto a = exact_attention({2, 2, queries, dim, tokens, capacity, is_causal}, q, k, v);
      const auto b = test::oracle_attention({4, 2, queries, tokens, dim, is_causal, 0}, q, short_k, short_v);
      REQUIRE(a.size() == b.size());
      for (std::size_t i = 0; i < a.size(); ++i) CHECK(a[i] == doctest::Approx(b[i]).epsilon(1e-12));
    }
}

TEST_CASE("scores that features change, and sums that they give away, as by hand") {
  FeatureSet set;
  set.softcap = 2, set.alibi = set.mask = set.sinks = true;
  FeatureInputs inputs;
  inputs.mask = {0, 0.25, -std::numeric_limits<float>::infinity()};
  inputs.slopes = {0.5f};
  inputs.sinks = {0.75f};
  const ScoreRule rule(set, true, inputs, 0, 1, 3);
  // One head with one channel, a query of 1 over keys 1, 2, 3; the mask hides the last token.
  const std::vector<double> q = {1}, k = {1, 2, 3}, v = {10, 20, 30};
  std::vector<double> lse;
  const auto out = exact_attention({1, 1, 1, 1, 3, 0, true, 0, &rule}, q, k, v, &lse);
  const double a = std::exp(2 * std::tanh(0.5) - 1), b = std::exp(2 * std::tanh(1.) - 0.5 + 0.25),
               sum = a + b + std::exp(0.75);
  CHECK(out[0] == doctest::Approx((10 * a + 20 * b) / sum).epsilon(1e-12));
  CHECK(lse[0] == doctest::Approx(std::log(sum)).epsilon(1e-12));
  inputs.leaves_sinks = true;
  inputs.mask.assign(3, -std::numeric_limits<float>::infinity());
  CHECK(exact_attention({1, 1, 1, 1, 3, 0, true, 0, &rule}, q, k, v, &lse)[0] == 0);
  CHECK(lse[0] == -std::numeric_limits<double>::infinity());
}

TEST_CASE("a row without tokens has its sink as its lse, or nothing") {
  FeatureSet set;
  set.sinks = true;
  FeatureInputs inputs;
  inputs.sinks = {0.75f};
  const ScoreRule rule(set, true, inputs, 0, 1, 0);
  std::vector<double> lse;
  CHECK(exact_attention({1, 1, 1, 1, 0, 1, true, 0, &rule}, std::vector<double>{1}, {}, {}, &lse)[0] == 0);
  CHECK(lse[0] == doctest::Approx(0.75).epsilon(1e-12));
  inputs.leaves_sinks = true;
  exact_attention({1, 1, 1, 1, 0, 1, true, 0, &rule}, std::vector<double>{1}, {}, {}, &lse);
  CHECK(lse[0] == -std::numeric_limits<double>::infinity());
}

TEST_CASE("the error of an lse: relative to 1, to the value, or to the largest score; nothing is near minus infinity") {
  const float infinity = std::numeric_limits<float>::infinity();
  CHECK(lse_error(std::vector<float>{0.5f}, std::vector<double>{0.25}) == 0.25);
  CHECK(lse_error(std::vector<float>{9}, std::vector<double>{8}) == 0.125);
  CHECK(lse_error(std::vector<float>{9}, std::vector<double>{8}, std::vector<double>{16}) == 0.0625);
  CHECK(lse_error(std::vector<float>{-infinity}, std::vector<double>{-infinity}) == 0);
  CHECK(lse_error(std::vector<float>{0.75f}, std::vector<double>{-infinity}) == infinity);
  CHECK(lse_error(std::vector<float>{-infinity}, std::vector<double>{0.75}) == infinity);
}

TEST_CASE("what rounding to halves moves is about as much as it is said to be, for keys short and long") {
  const int dim = 64, heads = 16, tokens = 40;
  for (const double length : {1., 8.}) {
    test::Rng rng(11);
    const auto draw = [&](std::size_t count, double factor) {
      auto x = widened(rng.normals(count));
      for (double& v : x) v *= factor;
      return x;
    };
    const auto halves = [](const std::vector<double>& x) {
      return widened(rounded_to(Element::f16, std::vector<float>(x.begin(), x.end())));
    };
    const auto q = draw(heads * dim, 1), k = draw(heads * tokens * dim, length), v = draw(heads * tokens * dim, 1);
    const ExactShape shape{heads, 1, 1, dim, tokens, tokens, false};
    const auto exact = exact_attention(shape, q, k, v), rounded = exact_attention(shape, halves(q), halves(k), v);
    const double error = difference(std::vector<float>(rounded.begin(), rounded.end()), exact, dim).relative_l2;
    const double said = rounding_deviation(shape, q, k, v, exact);
    CAPTURE(length);
    CHECK(error > 0.4 * said);
    CHECK(error < 1.3 * said);
  }
}

TEST_CASE("differences by hand") {
  const std::vector<float> a = {3, 4, 0, 2};
  const std::vector<double> b = {3, 4, 2, 0};
  const Difference d = difference(a, b, 2);
  CHECK(d.relative_l2 == doctest::Approx(std::sqrt(8.0 / 29)));
  CHECK(d.cosine == doctest::Approx(0.5));
  CHECK(difference(a, widened(a), 2).relative_l2 == 0);
  const std::vector<float> broken = {3, std::numeric_limits<float>::quiet_NaN(), 2, 0};
  CHECK_FALSE(difference(broken, b, 2).relative_l2 <= 1e9);  // NaN must never pass a limit
}

TEST_CASE("bytes are told apart, padding is not looked at") {
  const auto field = [](FieldKind kind, int at, int bytes) {
    Field made;
    made.kind = kind, made.at = at, made.bytes = bytes;
    return made;
  };
  Format format;
  format.block_bytes = 8;
  format.fields = {field(FieldKind::scale, 0, 2), field(FieldKind::codes, 2, 4), field(FieldKind::pad, 6, 1),
                   field(FieldKind::residual_signs, 7, 1)};
  std::vector<std::uint8_t> a(16, 0), b(16, 0);
  b[1] = 1;                 // scale of block 0
  b[8 + 2] = b[8 + 5] = 1;  // codes of block 1
  b[8 + 6] = 1;             // padding
  b[8 + 7] = 1;             // signs that no decoder reads
  const ByteAgreement agreement = compare_rows(format, a, b);
  CHECK(agreement.scale_differs == 1);
  CHECK(agreement.code_differs == 2);
  CHECK(agreement.scale_bytes == 4);
  CHECK(agreement.code_bytes == 8);
}

TEST_CASE("bytes are exact unless norms or errors are summed, or values rotated") {
  const auto registry = Registry::load(embedded_files());
  REQUIRE(registry);
  const auto is_exact = [&](const char* name) { return is_byte_exact(**registry->format(name, {})); };
  CHECK(is_exact("q4_0"));
  CHECK(is_exact("f16"));
  CHECK_FALSE(is_exact("tbq4_0"));
  CHECK_FALSE(is_exact("tq3_0_s2"));  // an amax rule over rotated values
  CHECK_FALSE(is_exact("atlas_turbo4"));
  CHECK(is_exact("atlas_nvfp4"));
  CHECK_FALSE(is_exact("atlas_nvfp4_4over6"));
}

TEST_CASE("appended bytes are those of quantize, but for near ties of formats whose bytes are not exact") {
  const auto registry = Registry::load(embedded_files());
  REQUIRE(registry);
  const auto allowed = [&](const char* name, long long bytes) {
    return allowed_append_bytes(**registry->format(name, {}), bytes);
  };
  CHECK(allowed("q4_0", 1'000'000) == 0);
  CHECK(allowed("kv4", 1'000) == 2);
  CHECK(allowed("kv4", 200'000) == 22);
  // A row that is not stored is found in up to 4,096 rows of 68 bytes.
  CHECK(allowed("kv4", 4096 * 68) < 68);
}

TEST_CASE("inputs are reproducible, heavy-tailed and have an outlier channel") {
  const int dim = 64;
  const auto x = heavy_tailed(1, 64 * 200, dim);
  CHECK(x == heavy_tailed(1, 64 * 200, dim));
  CHECK(x != heavy_tailed(2, 64 * 200, dim));
  double outlier = 0, other = 0;
  for (std::size_t i = 0; i < x.size(); i += dim) outlier += x[i + 21] * x[i + 21], other += x[i] * x[i];
  CHECK(std::sqrt(outlier / other) > 3);
}

}  // namespace
}  // namespace kvjit
