// A query row answers for itself, on the CPU back-end: for one program and one shape of call, the bits of a row of
// output depend on its own query and on the cache. The other rows may be zeros, larger by 1e4, infinite or NaN.
// SPDX-License-Identifier: MIT
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "tests/differential/harness.hpp"

namespace kvjit::test {
namespace {

constexpr unsigned kCompileThreads = 2;
constexpr const char* kWarpgroupArch = "sm_90a";  // has wgmma
constexpr const char* kWarpArch = "sm_80";        // has no wgmma
constexpr int kTokens = 70, kBlocks = 3;          // several tiles and KV splits, the last of a few tokens
constexpr float kInfinity = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();

// Says what is wrong with the bits of rows, or "". Rows must keep them whatever the others are, and rows of no numbers
// must stay no numbers.
std::string fault_of(Judge& judge, const KernelHarness::Call& call) {
  const int dim = judge.problem().head_dim, out_dim = judge.problem().v_dim();
  const std::vector<float> q = judge.queries(), together = must(judge.attend(call)).out;
  const int rows = int(q.size()) / dim;
  std::string fault;
  const auto check_others = [&](float factor, const auto& is_kept) {
    std::vector<float> changed = q;
    for (std::size_t i = 0; i < changed.size(); ++i)
      if (!is_kept(int(i) / dim)) changed[i] = std::isfinite(factor) ? changed[i] * factor : factor;
    judge.set_queries(changed);
    const std::vector<float> out = must(judge.attend(call)).out;
    for (int i = 0; i < int(out.size()) && fault.empty(); ++i) {
      const int row = i / out_dim;
      const float before = together[std::size_t(i)], after = out[std::size_t(i)];
      if (is_kept(row) && std::bit_cast<std::uint32_t>(before) != std::bit_cast<std::uint32_t>(after))
        fault = fmt::format("others times {}: row {} of {} was {}, is {}", factor, row, rows, before, after);
      if (!is_kept(row) && !std::isfinite(factor) && std::isfinite(after))
        fault = fmt::format("row {} of {} gives {}", row, factor, after);
    }
  };
  for (const float factor : {0.f, 1e4f, kInfinity, kNan})
    for (const int parity : {0, 1})  // neighbours in a block of columns, and rows of several blocks
      check_others(factor, [&](int row) { return row % 2 == parity; });
  for (const int alone : {0, rows - 1}) check_others(0.f, [&](int row) { return row == alone; });
  judge.set_queries(q);
  return fault;
}

const KernelHarness::Call kCall{kTokens, {}, kBlocks, false};

void check_own_bits(const std::vector<Case>& cases, const std::string& arch) {
  const auto context = open_context(DeviceKind::cpu);
  std::vector<Planned> all;
  for (const Case& test : cases) all.push_back(planned(registry(), test, arch));
  warm_up(context, all, kCompileThreads);
  for (const Planned& one : all) {
    Judge judge(context, one, 1, kTokens);
    judge.check(kCall);
    CHECK_MESSAGE(fault_of(judge, kCall).empty(), one.test.name(), " for ", arch, ": ", fault_of(judge, kCall));
  }
}

Case rows_of(const char* format, int gqa, int queries, Element q_type = Element::f16) {
  Case test{format, format, 128, gqa, queries, Layout::planar, true};
  test.q_type = q_type;
  return test;
}

TEST_CASE("the bits of a query row are its own: rows of one warp") {
  check_own_bits(
      {rows_of("f16", 4, 1), rows_of("q8_0", 8, 1), rows_of("kv4", 4, 2), rows_of("kv8", 1, 7), rows_of("tbq4_0", 8, 1),
       rows_of("bf16", 4, 2), rows_of("f16", 2, 2, Element::f32), rows_of("q4_1", 4, 1, Element::bf16),
       rows_of("vllm_int4_per_token_head", 4, 2), rows_of("f16", 8, 2, Element::f32), rows_of("q4_0", 8, 2),
       rows_of("tbq4_0", 5, 3), rows_of("tbq4_dense_qsfirst_raw", 4, 2)},
      kWarpgroupArch);
}

TEST_CASE("the bits of a query row are its own: teams") {
  const std::vector<Case> cases = {rows_of("kv4", 8, 8), rows_of("q8_0", 8, 3), rows_of("tbq4_0", 8, 5),
                                   rows_of("bf16", 8, 4), rows_of("f16", 8, 4, Element::f32)};
  for (const char* arch : {kWarpgroupArch, kWarpArch}) check_own_bits(cases, arch);
  check_own_bits({rows_of("f16", 8, 4), rows_of("q4_1", 8, 4)}, kWarpgroupArch);
}

TEST_CASE("the bits of a query row are its own: token-major heads, and chunks of rows") {
  Case together{"kv4", "q8_0", 128, 4, 2, Layout::rows, true}, halves{"tbq4_0", "q8_0", 128, 2, 1, Layout::rows};
  together.token_heads = halves.token_heads = 8;
  check_own_bits({together, halves, rows_of("kv4", 13, 5)}, kWarpgroupArch);
}

struct Mutation {
  const char *from, *to;
  Case test;
};
// Mutations: columns have the units of others; a NaN has a unit that is a number; a rare unit is left out.
const Mutation kMutations[] = {
    {"(Units::first_row() + n * 8 + 2 * (lane() & 3)) * 4", "(Units::first_row() + n * 8) * 4", rows_of("kv4", 4, 2)},
    {"largest < kInfinity ?", "true ?", rows_of("q8_0", 8, 1)},
    {"is_rare |=", "is_rare &=", rows_of("tbq4_0", 8, 5)}};

TEST_CASE("the bits of a query row are its own: a broken kernel is noticed") {
  const auto context = open_context(DeviceKind::cpu);
  std::vector<Planned> all;
  for (const Mutation& mutation : kMutations)
    all.push_back(planned(changed_registry("kernels/decode/query_fragments.cuh", mutation.from, mutation.to),
                          mutation.test, kWarpgroupArch));
  warm_up(context, all, kCompileThreads);
  for (std::size_t i = 0; i < all.size(); ++i) {
    Judge judge(context, all[i], 1, kTokens);
    std::vector<float> q = judge.queries();
    const std::size_t row = std::size_t(all[i].problem.head_dim);
    for (std::size_t at = 0; at < row; ++at) q[at] *= 1e-4f;
    judge.set_queries(q);
    const bool is_noticed = judge.is_wrong(kCall) || !fault_of(judge, kCall).empty();
    CHECK_MESSAGE(is_noticed, "not noticed: ", std::string(kMutations[i].from));
  }
}

// The largest error of a row, relative to that row. One fp16 term of Q costs a row more than two do.
constexpr double kMaxRowError = 2e-3;
double worst_row(const std::vector<float>& out, const std::vector<double>& exact, int dim) {
  double worst = 0;
  for (std::size_t at = 0; at < out.size(); at += std::size_t(dim)) {
    const auto row = [&](const auto& x) {
      return std::vector<double>(x.begin() + std::ptrdiff_t(at), x.begin() + std::ptrdiff_t(at) + dim);
    };
    const double error = relative_error(row(out), row(exact));
    worst = error <= worst ? worst : error;  // a NaN stays
  }
  return worst;
}

struct Range {
  const char* format;
  std::vector<float> sizes;  // of queries; keys have the reciprocal, so that scores are of ordinary size
};

// Queries of f32 of many sizes: the rows of a KV head differ by 100.
void check_sizes(const std::vector<Range>& ranges, const std::string& arch, int gqa, int queries) {
  const auto context = open_context(DeviceKind::cpu);
  std::vector<Planned> all;
  for (const Range& range : ranges) {
    Case test = rows_of(range.format, gqa, queries, Element::f32);
    test.v = "f16";
    all.push_back(planned(registry(), test, arch));
  }
  warm_up(context, all, kCompileThreads);
  for (std::size_t i = 0; i < all.size(); ++i)
    for (const float size : ranges[i].sizes) {
      Judge judge(context, all[i], 1, kTokens);
      if (must(registry().format(ranges[i].format, {}))->has_tensor_scale())
        judge.harness().set_tensor_scale(0, 1 / size);
      Rng rng(5);
      std::vector<float> q = judge.queries(), keys = rng.normals(judge.cache(0).x.size());
      for (std::size_t at = 0; at < q.size(); ++at) q[at] *= at / 128 % 2 ? size : size / 100;
      for (float& x : keys) x /= size;
      judge.set_queries(q);
      judge.set_cache(0, std::move(keys));
      const double worst = worst_row(must(judge.attend(kCall)).out, judge.exact({kTokens}), 128);
      CHECK_MESSAGE(worst <= kMaxRowError, all[i].test.name(), " for ", arch, ", queries of ", size,
                    ": error of a row ", worst);
    }
}

TEST_CASE("queries of any size count") {
  check_sizes({{"f16", {1e-4f, 1.f, 1e7f}},
               {"q8_0", {1e-3f, 1e4f}},
               {"fp8_e4m3", {1e-6f, 1e7f}},
               {"vllm_fp8_per_token_head", {1e-6f, 1e7f}},
               {"vllm_int8_per_token_head", {1e-6f, 1e7f}},
               {"tbq4_0", {1e-3f, 1e4f}}},
              kWarpgroupArch, 4, 2);
}
// What bf16 and f32 hold, and scales with the exponents of f32, which multiply values: fp16 holds neither 1e6 nor 1e-8.
TEST_CASE("keys of any size count") {
  const std::vector<float> sizes = {1e-6f, 1e8f, 1e20f};
  const std::vector<Range> wide = {{"bf16", sizes}, {"f32", sizes}};
  check_sizes(wide, kWarpgroupArch, 4, 2);
  check_sizes({{"vllm_ultraquant_k", {1e-6f, 1e8f}}, {"atlas_turbo8", {1e-6f, 1e8f}}, {"bf16", {1.f}}, {"f32", {1.f}}},
              kWarpgroupArch, 4, 1);
  check_sizes(wide, kWarpArch, 8, 3);
  check_sizes(wide, kWarpgroupArch, 8, 3);
}
TEST_CASE("queries of any size count: teams") {
  for (const char* arch : {kWarpgroupArch, kWarpArch})
    check_sizes({{"fp8_e4m3", {1e-6f, 1e7f}}, {"tbq4_0", {1e-3f, 1e4f}}, {"q4_1", {1e-3f, 1e3f}}}, arch, 8, 3);
}

}  // namespace
}  // namespace kvjit::test
