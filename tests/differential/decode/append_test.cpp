// Append on the CPU back-end. The cache must get the bytes that quantize stores and no others; the output must have the
// bits that quantize followed by decode gives.
// SPDX-License-Identifier: MIT
#include <algorithm>

#include "tests/differential/harness.hpp"

namespace kvjit::test {
namespace {

constexpr unsigned kCompileThreads = 2;
constexpr int kSequences = 5, kCapacity = 300;

Planned planned_for(const std::shared_ptr<Context>& context, const Case& test, bool appends) {
  std::string toml = test.toml();
  const std::string table = "[attention]\n";
  if (appends) toml.insert(toml.find(table) + table.size(), "append = true\n");
  Problem problem =
      must(resolve(must(parse_specs(toml, test.name())).at(0), registry(), context->backend()->info().arch));
  ProgramSource source = must(make_program(problem, registry()));
  return {test, std::move(problem), std::move(source)};
}

KernelHarness harness_of(const std::shared_ptr<Context>& context, const Planned& one) {
  return must(KernelHarness::make(context, must(Program::create(context, one.source)), one.problem,
                                  {kSequences, kKvHeads, kCapacity}));
}

// Formats with plain codes, integers, tables, minima, outliers by a constant and by a stored mask, residuals, a tensor
// scale, padding to whole blocks, a dense rotation; one and several new tokens, which may lie in two tiles.
const Case kCases[] = {{"f16", "bf16", 128, 4, 1, Layout::planar},
                       {"q4_0", "q8_0", 128, 1, 3, Layout::rows, true},
                       {"q5_1", "f32", 64, 2, 1, Layout::rows},
                       {"kv4", "tbq4_0", 128, 4, 2, Layout::planar, true},
                       {"kv3", "kv2", 128, 4, 1, Layout::planar},
                       {"tbq3_0", "turbo_split_54", 128, 4, 1, Layout::rows},
                       {"turbo_split2_b", "amesianx_tbqp3_1", 128, 1, 1, Layout::planar},
                       {"fp8_e4m3", "tbq4_dense_qsfirst_raw", 128, 2, 8, Layout::planar, true},
                       {"kv2", "turbo2_qk32", 128, 8, 3, Layout::planar}};  // a team of warps

struct Sides {
  std::vector<float> x[2];
};
Sides numbers(const Planned& one, Element type) {
  Sides sides;
  for (const int side : {0, 1})
    sides.x[side] = rounded_to(type, heavy_tailed(std::uint64_t(side) + 7,
                                                  std::size_t(kSequences * kKvHeads * kCapacity * one.problem.head_dim),
                                                  one.problem.head_dim));
  return sides;
}

// Marks the last `count` tokens of each sequence in a mask over all rows [sequences][kv_heads][tokens].
std::vector<bool> is_new_token(const std::vector<int>& lengths, int count) {
  std::vector<bool> mask;
  for (int s = 0; s < kSequences; ++s)
    for (int h = 0; h < kKvHeads; ++h)
      for (int t = 0; t < kCapacity; ++t)
        mask.push_back(t < lengths[std::size_t(s)] && t >= lengths[std::size_t(s)] - count);
  return mask;
}

void check_append(const std::shared_ptr<Context>& context, const Planned& plain, const Planned& appending, Element type,
                  const std::vector<int>& lengths, int blocks, ManyRows many_rows = ManyRows::decode) {
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

TEST_CASE("append: the bytes of quantize, the bits of quantize and then decode, and no other row touched") {
  const auto context = open_context(DeviceKind::cpu);
  std::vector<Planned> all;
  for (const Case& test : kCases)
    for (const bool appends : {false, true}) all.push_back(planned_for(context, test, appends));
  warm_up(context, all, kCompileThreads);
  for (std::size_t i = 0; i < all.size(); i += 2) {
    CHECK(all[i + 1].source.append);
    // Lengths: no token, fewer tokens than new ones, both sides of a tile's border, and many.
    check_append(context, all[i], all[i + 1], Element::f16, {257, 0, 32, 1, 33}, 3);
  }
  check_append(context, all[2], all[3], Element::f32, {64, 65, 66, 2, 300}, 29);
  check_append(context, all[2], all[3], Element::bf16, {64, 65, 66, 2, 300}, 1);
}

TEST_CASE("append by prefill: the bytes of quantize, the bits of quantize and then prefill, and no other row touched") {
  const auto context = open_context(DeviceKind::cpu);
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

TEST_CASE("programs that append require new tokens, and others refuse them") {
  const auto context = open_context(DeviceKind::cpu);
  const Planned plain = planned_for(context, kCases[0], false), appending = planned_for(context, kCases[0], true);
  KernelHarness harness = harness_of(context, appending);
  const std::vector<float> q(std::size_t(kSequences * kKvHeads * 4 * 128), 1.f);
  CHECK_FALSE(harness.attend(q, {40, {}, 0, false}));  // the call sets no new tokens
  for (const int side : {0, 1})
    harness.set_new_tokens(side, std::vector<float>(std::size_t(kSequences * kKvHeads * 128)));
  CHECK(harness.attend(q, {40, {}, 0, false}));

  float x = 0;
  const auto refusal = [&](const Planned& one, auto change) {
    const auto program = must(Program::create(context, one.source));
    AttentionCall call{};
    call.tokens = 1;
    call.q = call.out = {&x, 0, 0, 0};
    alignas(16) static kv::u8 row[4096];
    for (auto [side, info] : {std::pair{&call.k, &one.source.k}, {&call.v, &one.source.v}})
      side->codes = side->scales = row, side->codes_token_stride = info->code_row_bytes,
      side->scales_token_stride = info->scale_row_bytes;
    change(call);
    Buffer workspace = must(Buffer::make(context->backend(), program->workspace_bytes(call)));
    const auto ran = program->attention(call, workspace.pointer(), nullptr);
    REQUIRE_FALSE(ran);
    CHECK(ran.error().code == Code::bad_input);
    return ran.error().message;
  };
  CHECK(refusal(plain, [&](AttentionCall& c) { c.new_k.data = &x; }).find("which does not append") !=
        std::string::npos);
  CHECK(refusal(appending, [&](AttentionCall& c) { c.new_k.data = &x; }) == "new_v is a null pointer");
  CHECK(refusal(appending, [&](AttentionCall& c) { c.new_k.data = c.new_v.data = &x, c.new_type = kv::RowType(7); }) ==
        "new_k, new_v has type 7; f16 (1), bf16 (2) and f32 (3) are possible");
}

}  // namespace
}  // namespace kvjit::test
