// Shared by the tests of features: specs with features, random inputs for them, and the oracle's answer for a call.
// SPDX-License-Identifier: MIT
#pragma once
#include "tests/differential/harness.hpp"
#include "tools/verify/inputs/unseen.hpp"

namespace kvjit::test {

struct FeatureCase {
  std::string k, v, keys;  // formats; `keys`: more lines of [attention]
  int gqa = 4, query_length = 1;
  Layout layout = Layout::planar;
  int token_heads = 0;  // layout rows: token-major KV heads; 0: off

  std::string toml() const {
    return fmt::format(
        "[k]\nformat = \"{}\"\n[v]\nformat = \"{}\"\n[attention]\nq_heads_per_kv = {}\nquery_length = {}\n{}\n"
        "[cache]\nlayout = \"{}\"\n{}",
        k, v, gqa, query_length, keys, to_string(layout),
        token_heads > 0 ? fmt::format("token_heads = {}\n", token_heads) : "");
  }
};

inline Planned planned(const Registry& registry, const FeatureCase& test, const std::string& arch) {
  const std::vector<Spec> specs = must(parse_specs(test.toml(), test.keys));
  Problem problem = must(resolve(specs.at(0), registry, arch));
  ProgramSource source = must(make_program(problem, registry));
  return {{test.k, test.v, problem.head_dim, test.gqa, test.query_length, test.layout, problem.causal},
          std::move(problem),
          std::move(source)};
}

// A program with a cache, queries, and feature inputs that a test may change.
class FeatureJudge {
 public:
  static constexpr double kInfinity = std::numeric_limits<double>::infinity();

  FeatureJudge(const std::shared_ptr<Context>& context, const Planned& one, int sequences, int capacity,
               int variant = 0)
      : problem_(one.problem),
        shape_{sequences, one.problem.token_heads > 0 ? one.problem.token_heads : kKvHeads, capacity},
        harness_(must(KernelHarness::make(context, must(Program::create(context, one.source)), problem_, shape_))) {
    for (const int side : {0, 1}) must(harness_.set_rows(side, cache(side).rows));
    Rng rng(3);
    q_ = rounded_to(problem_.q_type, rng.normals(std::size_t(sequences * heads() * problem_.query_length) *
                                                 std::size_t(problem_.head_dim)));
    for (float& q : q_) q *= 3;  // scores far apart, so that softcap 5 bends them
    q_ = rounded_to(problem_.q_type, q_);
    inputs = random_features(problem_.features, {sequences, heads(), problem_.query_length, capacity},
                             std::uint64_t(variant) + 1, variant);
  }

  FeatureInputs inputs;
  ManyRows many_rows = ManyRows::chosen;  // of every call

  struct Answer {
    std::vector<double> out, lse,
        largest;  // |q| times the largest |k| times the scale, of each row
  };
  Answer exact(const std::vector<int>& lengths) const {
    Answer all;
    const FeatureSet& set = problem_.features;
    const auto dim = std::size_t(problem_.head_dim), rows = std::size_t(heads() * problem_.query_length);
    for (int s = 0; s < shape_.sequences; ++s) {
      const int length = lengths[std::size_t(s)];
      std::vector<double> attended[2], lse;
      for (const int side : {0, 1})
        for (int head = 0; head < shape_.kv_heads; ++head) {
          const auto first = cache(side).decoded.begin() +
                             std::ptrdiff_t(std::size_t(s * shape_.kv_heads + head) * std::size_t(shape_.tokens) * dim);
          attended[side].insert(attended[side].end(), first, first + length * problem_.head_dim);
        }
      const std::vector<double> q(q_.begin() + std::ptrdiff_t(std::size_t(s) * rows * dim),
                                  q_.begin() + std::ptrdiff_t(std::size_t(s + 1) * rows * dim));
      OracleCase one{heads(), shape_.kv_heads, problem_.query_length, length, problem_.head_dim, false, 0};
      one.softcap = set.softcap;
      one.added = [&](int head, int query, int token) { return added(s, head, query, token, length); };
      if (set.sinks && !inputs.leaves_sinks) one.sinks.assign(inputs.sinks.begin(), inputs.sinks.end());
      one.lse = &lse;
      const auto out = oracle_attention(one, q, attended[0], attended[1]);
      all.out.insert(all.out.end(), out.begin(), out.end());
      all.lse.insert(all.lse.end(), lse.begin(), lse.end());
      const ExactShape shape{shape_.kv_heads, problem_.q_heads_per_kv, problem_.query_length, problem_.head_dim,
                             length};
      const auto largest = largest_scores(shape, q, attended[0]);
      all.largest.insert(all.largest.end(), largest.begin(), largest.end());
    }
    return all;
  }

  Result<KernelHarness::Outcome> try_attend(const std::vector<int>& lengths, int blocks, bool is_reference = false) {
    harness_.set_features(inputs);
    if (!has_own_rows_) hide_unseen(lengths);  // NaN
    KernelHarness::Call call{0, lengths, blocks, is_reference};
    call.many_rows = many_rows;
    return harness_.attend(q_, call);
  }
  KernelHarness::Outcome attend(const std::vector<int>& lengths, int blocks, bool is_reference = false) {
    return must(try_attend(lengths, blocks, is_reference));
  }
  // Returns whether a call differs from the oracle in its output or its lse, or was not made by the kernel that
  // many_rows asks for. NaN counts as different.
  bool is_wrong(const std::vector<int>& lengths, int blocks, bool is_reference = false) {
    return is_wrong(attend(lengths, blocks, is_reference), lengths);
  }
  // Returns whether a test notices a broken kernel: it breaks a rule of the CPU back-end or its own device_assert, or
  // it differs from the oracle.
  bool is_noticed(const std::vector<int>& lengths, int blocks) {
    const auto tried = try_attend(lengths, blocks);
    return tried ? is_wrong(*tried, lengths) : tried.error().code == Code::internal;
  }

  // Rows of a test's own: calls leave them as they are. Otherwise a call makes NaN of tokens that no query sees.
  void set_rows(int side, std::span<const std::uint8_t> rows) {
    must(harness_.set_rows(side, rows));
    has_own_rows_ = true;
  }

  // Fills with 0xFF, which is no number in any format here, the rows of tokens that no query row of a KV head sees, and
  // those behind the lengths. If `bad_each` is not 0, also V of every bad_each-th token that some rows see and others
  // do not; rows that see such a token are left out of is_wrong_by_rows().
  void poison(const std::vector<int>& lengths, int bad_each) {
    const int group = problem_.q_heads_per_kv;
    bad_.assign(std::size_t(shape_.sequences * shape_.kv_heads * shape_.tokens), false);
    for (const int side : {0, 1}) {
      std::vector<std::uint8_t> rows = cache(side).rows;
      const auto row_bytes = std::ptrdiff_t(rows.size() / bad_.size());
      for (std::size_t row = 0; row < bad_.size(); ++row) {
        const int token = int(row % std::size_t(shape_.tokens)), head = int(row / std::size_t(shape_.tokens)),
                  sequence = head / shape_.kv_heads, length = lengths[std::size_t(sequence)];
        int seeing = 0;
        for (int i = 0; token < length && i < group * problem_.query_length; ++i)
          seeing += sees(sequence, head % shape_.kv_heads * group + i % group, i / group, token, length);
        if (side == 1 && bad_each > 0)
          bad_[row] = seeing > 0 && seeing < group * problem_.query_length && token % bad_each == 0;
        if (seeing == 0 || bad_[row])
          std::fill_n(rows.begin() + std::ptrdiff_t(row) * row_bytes, row_bytes, std::uint8_t(0xff));
      }
      set_rows(side, rows);
    }
  }
  // Queries and keys of a team are halves: a row of scores of some hundred has a larger error than all rows together.
  static constexpr double kMaxRowError = 10 * kMaxKernelError;
  // Compares each query row with the oracle. A row that sees a bad token must have something that is no number.
  bool is_wrong_by_rows(const std::vector<int>& lengths, int blocks, bool is_reference = false) {
    const KernelHarness::Outcome outcome = attend(lengths, blocks, is_reference);
    const Answer want = exact(lengths);
    const auto dim = std::size_t(problem_.v_dim());
    for (std::size_t row = 0; row < want.out.size() / dim; ++row) {
      const int query = int(row) % problem_.query_length, head = int(row) / problem_.query_length % heads(),
                sequence = int(row) / problem_.query_length / heads(), length = lengths[std::size_t(sequence)];
      const auto got = std::span(outcome.out).subspan(row * dim, dim);
      bool sees_bad = false;
      for (int token = 0; token < length; ++token)
        sees_bad |=
            bad_[std::size_t((sequence * shape_.kv_heads + head / problem_.q_heads_per_kv) * shape_.tokens + token)] &&
            sees(sequence, head, query, token, length);
      if (sees_bad) {
        if (std::all_of(got.begin(), got.end(), [](float v) { return std::isfinite(v); })) return true;
        continue;
      }
      const double error = relative_error(got, std::span(want.out).subspan(row * dim, dim));
      if (!(error <= kMaxRowError)) return true;
      if (!outcome.lse.empty() && outcome.lse[row] != want.lse[row] &&
          !(std::abs(outcome.lse[row] - want.lse[row]) <= kMaxKernelError * std::max(1., std::abs(want.lse[row]))))
        return true;
    }
    return false;
  }

  KernelHarness& harness() { return harness_; }
  const Problem& problem() const { return problem_; }
  const Encoded& cache(int side) const {
    return encoded(side == 0 ? problem_.k : problem_.v, problem_.head_dim, shape_, side);
  }
  int heads() const { return shape_.kv_heads * problem_.q_heads_per_kv; }

 private:
  bool is_wrong(const KernelHarness::Outcome& outcome, const std::vector<int>& lengths) const {
    const auto& kernels = outcome.report.kernels;
    const bool by_prefill = many_rows == ManyRows::prefill || many_rows == ManyRows::two_pass;
    if ((outcome.report.converted_bytes > 0) != (many_rows == ManyRows::two_pass)) return true;
    if (by_prefill && std::none_of(kernels.begin(), kernels.end(),
                                   [](const std::string& kernel) { return kernel.rfind("prefill.", 0) == 0; }))
      return true;
    const Answer want = exact(lengths);
    if (!(relative_error(outcome.out, want.out) <= kMaxKernelError)) return true;
    if (outcome.lse.empty() == problem_.features.lse) return true;
    for (std::size_t i = 0; i < outcome.lse.size(); ++i) {
      // Keys that are rounded to halves move scores in proportion to their size: in prefill, and entries of tables in
      // decode on archs without products of integers.
      const bool are_halves =
          by_prefill || (problem_.k.codes().kind == CodeKind::table && !problem_.arch.has("mma_m16n8k32_s8"));
      const double score = are_halves ? want.largest[i] : 0;
      if (outcome.lse[i] != want.lse[i] &&
          !(std::abs(outcome.lse[i] - want.lse[i]) <= kMaxKernelError * std::max({1., std::abs(want.lse[i]), score})))
        return true;
    }
    return false;
  }
  // Stores NaN in the rows of tokens that no query of their KV head sees, and the numbers of the cache in the others.
  void hide_unseen(const std::vector<int>& lengths) {
    const int group = problem_.q_heads_per_kv;
    const auto is_seen = [&](int s, int kv_head, int token) {
      for (int row = 0; row < group * problem_.query_length; ++row)
        if (added(s, kv_head * group + row / problem_.query_length, row % problem_.query_length, token,
                  lengths[std::size_t(s)]) != -kInfinity)
          return true;
      return false;
    };
    for (const int side : {0, 1}) {
      std::vector<std::uint8_t> rows = cache(side).rows;
      const auto nan = unseen_row(side == 0 ? problem_.k : problem_.v, problem_.head_dim, Unseen::nan);
      auto row = rows.begin();
      for (int s = 0; s < shape_.sequences; ++s)
        for (int head = 0; head < shape_.kv_heads; ++head)
          for (int t = 0; t < int(shape_.tokens); ++t, row += std::ptrdiff_t(nan.size()))
            if (t >= lengths[std::size_t(s)] || !is_seen(s, head, t)) std::copy(nan.begin(), nan.end(), row);
      must(harness_.set_rows(side, rows));
    }
  }
  double added(int sequence, int head, int query, int token, int length) const {
    const FeatureSet& set = problem_.features;
    const auto element = [&](const auto& values, const FeatureInputs::Strides& strides, int at) {
      return values[std::size_t(sequence * strides.sequence + head * strides.head + query * strides.query + at)];
    };
    const int place = length - problem_.query_length + query + inputs.position_offset +
                      (inputs.position_offsets.empty() ? 0 : inputs.position_offsets[std::size_t(sequence)]);
    const int ahead = token - place;  // distance of the token ahead of the query
    bool sees = !(problem_.causal && ahead > 0);
    if (set.window_left != -1) sees &= -ahead <= set.window_left;
    if (set.window_right != -1) sees &= ahead <= set.window_right;
    if (set.packed_mask) {
      const int new_tokens = inputs.packed_tokens == 0 ? length : inputs.packed_tokens,
                bit = token - (length - new_tokens);
      if (bit >= 0) sees &= element(inputs.packed_mask, inputs.packed_strides, bit / 32) >> bit % 32 & 1;
    }
    if (set.token_ranges)
      sees &= token >= inputs.token_ranges[std::size_t(2 * sequence)] &&
              token < inputs.token_ranges[std::size_t(2 * sequence + 1)];
    double sum = sees ? 0 : -kInfinity;
    if (set.has_hook()) sum -= 0.25 * std::log1p(std::abs(ahead));  // the formula of specs/hooks/log_distance.cuh
    if (set.alibi) sum += double(inputs.slopes[std::size_t(head)]) * ahead;
    if (set.mask) {
      const double mask = element(inputs.mask, inputs.mask_strides, token);
      sum += std::isinf(mask) || !set.mask_slopes ? mask : mask * double(inputs.slopes[std::size_t(head)]);
    }
    return sum;
  }

  bool sees(int sequence, int head, int query, int token, int length) const {
    return added(sequence, head, query, token, length) > -kInfinity;
  }

  Problem problem_;
  CacheShape shape_;
  KernelHarness harness_;
  std::vector<float> q_;
  bool has_own_rows_ = false;
  std::vector<bool> bad_;  // [sequence][KV head][token]: V is no number, and only some rows see it
};

}  // namespace kvjit::test
