// Append: the cache must get the bytes that quantize stores and no others; the output must have the bits that quantize
// followed by attention gives. The CPU tests and the GPU tests share this file.
// SPDX-License-Identifier: MIT
#pragma once
#include <algorithm>

#include "tests/differential/harness.hpp"

namespace kvjit::test::appends {

constexpr int kSequences = 5, kCapacity = 300;

inline Planned planned_for(const std::shared_ptr<Context>& context, const Case& test, bool appends) {
  std::string toml = test.toml();
  const std::string table = "[attention]\n";
  if (appends) toml.insert(toml.find(table) + table.size(), "append = true\n");
  Problem problem =
      must(resolve(must(parse_specs(toml, test.name())).at(0), registry(), context->backend()->info().arch));
  ProgramSource source = must(make_program(problem, registry()));
  return {test, std::move(problem), std::move(source)};
}

inline KernelHarness harness_of(const std::shared_ptr<Context>& context, const Planned& one) {
  return must(KernelHarness::make(context, must(Program::create(context, one.source)), one.problem,
                                  {kSequences, kKvHeads, kCapacity}));
}

struct Sides {
  std::vector<float> x[2];
};
inline Sides numbers(const Planned& one, Element type) {
  Sides sides;
  for (const int side : {0, 1})
    sides.x[side] = rounded_to(type, heavy_tailed(std::uint64_t(side) + 7,
                                                  std::size_t(kSequences * kKvHeads * kCapacity * one.problem.head_dim),
                                                  one.problem.head_dim));
  return sides;
}

// Marks the last `count` tokens of each sequence in a mask over all rows [sequences][kv_heads][tokens].
inline std::vector<bool> is_new_token(const std::vector<int>& lengths, int count) {
  std::vector<bool> mask;
  for (int s = 0; s < kSequences; ++s)
    for (int h = 0; h < kKvHeads; ++h)
      for (int t = 0; t < kCapacity; ++t)
        mask.push_back(t < lengths[std::size_t(s)] && t >= lengths[std::size_t(s)] - count);
  return mask;
}

inline void check_append(const std::shared_ptr<Context>& context, const Planned& plain, const Planned& appending,
                         Element type, const std::vector<int>& lengths, int blocks,
                         ManyRows many_rows = ManyRows::decode) {
  INFO(plain.test.name(), ", ", to_string(type), ", blocks ", blocks);
  const Problem& problem = plain.problem;
  const Sides inputs = numbers(plain, type);
  const std::vector<bool> new_tokens = is_new_token(lengths, problem.query_length);
  KernelHarness before = harness_of(context, plain), harness = harness_of(context, appending);
  for (KernelHarness* each : {&before, &harness})
    for (const int side : {0, 1})
      if ((side == 0 ? plain.source.k : plain.source.v).has_tensor_scale) each->set_tensor_scale(side, 0.25f);
  std::vector<std::uint8_t> stored[2], poisoned[2];
  for (const int side : {0, 1}) {
    must(before.quantize(side, inputs.x[side], type));
    stored[side] = must(before.rows(side));
    poisoned[side] = stored[side];
    const std::size_t row = stored[side].size() / new_tokens.size();
    for (std::size_t i = 0; i < new_tokens.size(); ++i)
      if (new_tokens[i]) std::fill_n(poisoned[side].begin() + std::ptrdiff_t(i * row), row, std::uint8_t(0xff));
    must(harness.set_rows(side, poisoned[side]));
    poisoned[side] = must(harness.rows(side));  // append does not write padding
    harness.set_new_tokens(
        side, new_token_rows(inputs.x[side], harness.shape(), lengths, problem.query_length, problem.head_dim), type);
  }
  Rng rng(3);
  const auto q = rng.normals(std::size_t(kSequences * kKvHeads * problem.q_heads_per_kv * problem.query_length) *
                             std::size_t(problem.head_dim));
  KernelHarness::Call call{0, lengths, blocks, false};
  call.many_rows = many_rows;
  const auto want = must(before.attend(q, call)), got = must(harness.attend(q, call));
  CHECK(got.out == want.out);
  // By decode append adds no launch, else one for K and one for V.
  CHECK(got.report.kernels.size() == want.report.kernels.size() + (many_rows == ManyRows::decode ? 0 : 2));
  for (const int side : {0, 1}) {
    const auto rows = must(harness.rows(side));
    const std::size_t row = rows.size() / new_tokens.size();
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < new_tokens.size(); ++i) {
      const auto& expected = new_tokens[i] ? stored[side] : poisoned[side];
      wrong += !std::equal(rows.begin() + std::ptrdiff_t(i * row), rows.begin() + std::ptrdiff_t((i + 1) * row),
                           expected.begin() + std::ptrdiff_t(i * row));
    }
    CHECK_MESSAGE(wrong == 0, "side ", side, ": ", wrong, " rows are not as they should be");
  }
}

// Prefill in one pass and in two: append is two launches ahead of it.
inline void check_append_by_prefill(const std::shared_ptr<Context>& context) {
  for (const auto& [test, many_rows] :
       {std::pair{Case{"kv4", "q8_0", 128, 4, 20, Layout::planar, true}, ManyRows::prefill},
        {Case{"f16", "f16", 128, 2, 70, Layout::rows, true}, ManyRows::prefill},
        {Case{"q4_0", "kv3", 128, 4, 20, Layout::paged, true, 0, 16, Layout::planar}, ManyRows::prefill},
        {Case{"tbq4_0", "f16", 128, 4, 20, Layout::planar, true}, ManyRows::two_pass},
        {Case{"turbo4_qjl68", "tbq4_dense_qsfirst_raw", 128, 4, 20, Layout::rows, true}, ManyRows::two_pass}}) {
    Planned plain = planned_for(context, test, false);
    // Bulk kernels add up a rotation in another order, by which a code next to a rounding boundary may differ.
    for (const bool is_key : {true, false})
      for (const auto type : {kv::RowType::f16, kv::RowType::f32})
        plain.source.kernels.erase(bulk_role(true, is_key, type));
    const Planned appending = planned_for(context, test, true);
    check_append(context, plain, appending, Element::f16, {257, 0, 32, 1, 33}, 3, many_rows);
    check_append(context, plain, appending, Element::f32, {64, 65, 66, 2, 300}, 0, many_rows);
  }
}

}  // namespace kvjit::test::appends
