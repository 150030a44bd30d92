// Sets the inputs and computes the errors by which kernels are judged: see judge.hpp.
// SPDX-License-Identifier: MIT
#include "tools/verify/judge.hpp"

#include <algorithm>
#include <cmath>

#include "tools/verify/measure.hpp"

namespace kvjit {

void set_new_tokens(KernelHarness& harness, const Problem& problem, const std::vector<float>* const (&x)[2],
                    int tokens) {
  if (!problem.append) return;
  const std::vector<int> lengths(static_cast<std::size_t>(harness.shape().sequences), tokens);
  for (const int side : {0, 1})
    harness.set_new_tokens(side,
                           new_token_rows(*x[side], harness.shape(), lengths, problem.query_length, problem.dim(side)));
}

void set_features(KernelHarness& harness, const Problem& problem, int queries) {
  const CacheShape& shape = harness.shape();
  harness.set_features(random_features(problem.features,
                                       {shape.sequences, shape.kv_heads * problem.q_heads_per_kv,
                                        queries > 0 ? queries : problem.query_length, static_cast<int>(shape.tokens)},
                                       11));
}

double least_error(Element out_type, double largest_value) {
  return out_type == Element::f16 ? 0x1p-25 : 0x1p-126 * std::max(1., largest_value);
}

double row_limit(Element out_type, double norm, std::span<const double> exact) {
  const int bits = out_type == Element::bf16 ? 8 : out_type == Element::f16 ? 11 : 24;
  double largest = 0;
  for (const double x : exact) largest = std::max(largest, std::abs(x));
  const double half_step = largest > 0 && std::isfinite(largest) ? std::ldexp(1., std::ilogb(largest) - bits) : 0;
  return std::max(kernel_limit(out_type) * norm, kMaxKernelError * norm + half_step);
}

double lse_error(std::span<const float> lse, std::span<const double> exact, std::span<const double> scores) {
  double worst = 0;
  for (std::size_t i = 0; i < lse.size(); ++i) {
    // No finite number is near minus infinity.
    const double unit = std::isinf(exact[i]) ? 1 : std::max({1., std::abs(exact[i]), scores.empty() ? 0 : scores[i]});
    const double error = lse[i] == exact[i] ? 0 : std::abs(lse[i] - exact[i]) / unit;
    worst = std::isnan(error) ? error : std::max(worst, error);
  }
  return worst;
}

Result<void> judge_by_reference(const KernelHarness& harness, std::span<const float> q, KernelHarness::Call call,
                                std::vector<double>& exact, std::vector<double>& exact_lse) {
  call.is_reference = true;
  KV_TRY(judge, harness.attend(q, call));
  exact = widened(judge.out), exact_lse = widened(judge.lse);
  return {};
}

}  // namespace kvjit
