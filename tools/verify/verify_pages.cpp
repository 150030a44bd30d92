// Checks attention over paged caches: see verify_pages.hpp.
// SPDX-License-Identifier: MIT
#include "tools/verify/verify_pages.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tools/verify/judge.hpp"
#include "tools/verify/measure.hpp"

namespace kvjit {
namespace {

constexpr int kKvHeads = 2;

// The elements of sequence s in an array of `sequences` equal slices.
template <class T>
std::span<const T> slice_of(const std::vector<T>& all, int s, int sequences) {
  const std::size_t each = all.size() / static_cast<std::size_t>(sequences);
  return std::span<const T>(all).subspan(static_cast<std::size_t>(s) * each, each);
}

}  // namespace

Result<PagesVerdict> verify_pages(const std::shared_ptr<Context>& context, const std::shared_ptr<Program>& program,
                                  const Problem& problem, double limit) {
  const std::vector<int> lengths = {257, 0, program->source().tile_tokens + 1 + problem.query_length};
  const int sequences = static_cast<int>(lengths.size()), capacity = *std::max_element(lengths.begin(), lengths.end());
  const auto rows = static_cast<std::size_t>(sequences * kKvHeads * capacity);
  const auto q = rounded_to(problem.q_type, heavy_tailed(7,
                                                         std::size_t(sequences * kKvHeads * problem.q_heads_per_kv) *
                                                             std::size_t(problem.query_length * problem.head_dim),
                                                         problem.head_dim));
  PagesVerdict verdict;
  for (const PagePlaces places : {PagePlaces::own, PagePlaces::other, PagePlaces::slots}) {
    KV_TRY(harness, KernelHarness::make(context, program, problem, {sequences, kKvHeads, capacity, 1, places}));
    harness.set_features(random_features(problem.features,
                                         {sequences, kKvHeads * problem.q_heads_per_kv, problem.query_length, capacity},
                                         11, int(places)));
    KV_CHECK(harness.vary_head_scales());
    std::vector<double> decoded[2];
    for (const int side : {0, 1}) {
      const int dim = problem.dim(side);
      const auto x = heavy_tailed(static_cast<std::uint64_t>(side) + 5, rows * static_cast<std::size_t>(dim), dim);
      const bool by_slots = places == PagePlaces::slots;
      KV_CHECK(by_slots ? harness.quantize_slots(side, x, std::vector<bool>(rows / kKvHeads))
                        : harness.quantize(side, x));
      if (problem.append)
        harness.set_new_tokens(side, new_token_rows(x, harness.shape(), lengths, problem.query_length, dim));
    }
    for (const int side : {0, 1}) {  // once both are written: V may be in K's rows
      KV_TRY(stored, harness.rows(side));
      decoded[side] =
          decode_rows(side == 0 ? problem.k : problem.v, stored, problem.dim(side), harness.row_scales(side));
    }
    KV_TRY(outcome, harness.attend(q, {0, lengths, 0, false}));
    for (int s = 0; s < sequences; ++s) {
      const int tokens = lengths[static_cast<std::size_t>(s)];
      const ScoreRule rule(problem.features, problem.causal, harness.features(), s, problem.query_length, tokens);
      ExactShape shape{kKvHeads, problem.q_heads_per_kv, problem.query_length, problem.head_dim, tokens,
                       capacity, problem.causal,         problem.v_dim()};
      shape.rule = &rule;
      const auto queries = slice_of(q, s, sequences), out = slice_of(outcome.out, s, sequences);
      const auto keys = slice_of(decoded[0], s, sequences), values = slice_of(decoded[1], s, sequences);
      const auto exact = exact_attention(shape, widened(queries), keys, values);
      const double bound = sparse_bound(shape, problem.sparse_v, widened(queries), keys, values, exact);
      const bool is_zero = std::all_of(out.begin(), out.end(), [](float v) { return v == 0; });
      const double error = tokens == 0 ? (is_zero ? 0 : HUGE_VAL) : difference(out, exact, problem.v_dim()).relative_l2;
      verdict.worst = std::isnan(error) ? error : std::max(verdict.worst, error);
      double most = limit + bound;
      // Prefill multiplies keys as halves, as verify_one explains.
      const auto is_prefill = [](const std::string& kernel) { return kernel.starts_with("prefill."); };
      if (error > most && std::any_of(outcome.report.kernels.begin(), outcome.report.kernels.end(), is_prefill))
        most += kRoundingDeviations * rounding_deviation(shape, widened(queries), keys, values, exact);
      if (!(error <= most) && verdict.failure.empty())
        verdict.failure = fmt::format("sequence {} of {} tokens in pages of {}, rows placed {}: error {:.2e}", s,
                                      tokens, problem.page_tokens, int(places), error);
    }
  }
  return verdict;
}

}  // namespace kvjit
