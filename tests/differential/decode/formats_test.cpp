// Every format of specs/formats as K with every format as V. All combinations are planned. On the CPU back-end each
// format runs with itself in planar, or in rows as K of a random pair, and every second case has 64 query rows.
// The oracle attends to the decoded cache. KVJIT_FULL=1 runs all of them, and each format with f16 on the other side.
// SPDX-License-Identifier: MIT
#include "generator/kernels/decode/plan.hpp"
#include "tests/differential/harness.hpp"
#include "tests/support/every_format.hpp"

namespace kvjit::test {
namespace {

constexpr unsigned kCompileThreads = 2;

void check_cases(const std::vector<Case>& cases) {
  constexpr std::size_t kBatch = 32;  // limit of texts and shared objects in memory at once
  for (std::size_t first = 0; first < cases.size(); first += kBatch) {
    const auto context = open_context(DeviceKind::cpu);
    std::vector<Planned> batch;
    for (std::size_t i = first; i < std::min(first + kBatch, cases.size()); ++i)
      batch.push_back(planned(registry(), cases[i], context->backend()->info().arch));
    warm_up(context, batch, kCompileThreads);
    for (const Planned& one : batch) {
      Judge judge(context, one);
      for (const int tokens : judge.ragged_lengths())
        if (tokens >= one.test.query_length) judge.check({tokens, {}, 0, false});
    }
  }
}

// Every second case has 64 query rows, which teams of warps take on sm_90a, in place of 4.
std::vector<Case> with_many_rows(std::vector<Case> cases) {
  for (std::size_t i = turn_of_texts() / 2 % 2; i < cases.size(); i += 2)
    cases[i].query_length = 16, cases[i].is_causal = true;
  return cases;
}

// Returns 128 if both formats fit it, else 256 (formats with blocks of 256 values).
int usual_head_dim(const std::string& k, const std::string& v) {
  const std::vector<int> dims = common(registry(), k, v, {128, 256});
  REQUIRE_MESSAGE(!dims.empty(), k, " and ", v, " share no head_dim");
  return dims.front();
}

std::vector<Case> each_format(const char* k, const char* v, Layout layout) {
  std::vector<Case> cases;
  for (const std::string& name : format_names(registry())) {
    Case test{k ? k : name, v ? v : name, 128, 4, 1, layout, false};
    test.head_dim = usual_head_dim(test.k, test.v);
    cases.push_back(test);
  }
  return cases;
}

std::vector<Case> random_pairs(int count) {
  Rng rng(2026);
  const std::vector<std::string> names = format_names(registry());
  const auto any_of = [&](const auto& from) { return from[std::size_t(rng.below(int(std::size(from))))]; };
  std::vector<Case> cases;
  while (int(cases.size()) < count) {
    Case test;
    test.k = any_of(names), test.v = any_of(names);
    test.head_dim = any_of(common(registry(), test.k, test.v, {64, 128, 256}));
    constexpr int kGroups[] = {1, 4, 8};
    test.gqa = any_of(kGroups);
    test.is_causal = rng.below(2) == 1;
    test.query_length = test.is_causal ? 8 / test.gqa : 1;  // 8 query rows fit, whatever the formats
    test.layout = rng.below(2) == 1 ? Layout::rows : Layout::planar;
    cases.push_back(test);
  }
  return cases;
}

// K whose rounding to fp16 alone costs about 1e-3 over these rows (templates/kernels/decode/NOTES.md).
bool is_near_bound(const std::string& k, int head_dim) {
  return k == "buun_turbo1_tcq_v" || (k == "planar4" && head_dim > 128);
}

// Pairs in random order, in rows: each format is K once and V once. Formats near the bound have f16 beside them.
std::vector<Case> shuffled_pairs() {
  Rng rng(2027);
  const std::vector<std::string> k = format_names(registry());
  std::vector<std::string> v = k;
  for (std::size_t i = v.size(); i > 1; --i) std::swap(v[i - 1], v[std::size_t(rng.below(int(i)))]);
  std::vector<Case> cases;
  for (std::size_t i = 0; i < k.size(); ++i) {
    if (is_near_bound(k[i], usual_head_dim(k[i], v[i]))) v[i] = "f16";
    const int head_dim = usual_head_dim(k[i], v[i]);
    cases.push_back({k[i], v[i], head_dim, 4, 1, Layout::rows, false});
  }
  return cases;
}

// Two tests share the formats. The first one runs every second format with itself, in layout planar. The second one
// runs the others as K of a shuffled pair, in rows. The tests that need KVJIT_FULL=1 run every format in more
// combinations; each takes minutes to compile.
const bool kIsComplete = std::getenv("KVJIT_FULL") != nullptr;

TEST_CASE("every pair of formats is planned, in both layouts") {
  const std::vector<std::string> names = format_names(registry());
  CHECK(names.size() >= 100);
  Problem problem;
  problem.q_heads_per_kv = 8;
  problem.query_length = 1;
  problem.arch = *must(registry().require_arch("sm_75", {}));  // the arch with the least shared memory
  int planned_pairs = 0;
  for (problem.layout = Layout::planar;; problem.layout = Layout::rows) {
    for (const std::string& k : names)
      for (const std::string& v : names) {
        problem.head_dim = problem.head_dim_v = usual_head_dim(k, v);
        problem.k = must(registry().format_for(k, problem.head_dim, {}));
        problem.v = must(registry().format_for(v, problem.head_dim, {}));
        const auto plan = plan_decode(problem);
        CHECK_MESSAGE(plan, k, " and ", v, ", ", to_string(problem.layout), ": ", plan ? "" : render(plan.error()));
        planned_pairs += plan.has_value();
      }
    if (problem.layout == Layout::rows) break;
  }
  CHECK(planned_pairs == 2 * int(names.size() * names.size()));
}

TEST_CASE("every format has codec kernels and plans for each side, at every head_dim that it fits") {
  for (const std::string& name : format_names(registry()))
    for (const int head_dim : fitting(registry(), name, {64, 128, 256}))
      for (const Layout layout : {Layout::planar, Layout::rows}) {
        CAPTURE(name);
        CAPTURE(head_dim);
        const Spec spec = must(parse_specs(Case{name, name, head_dim, 1, 1, layout, false}.toml(), name)).front();
        const Problem problem = must(resolve(spec, registry(), "sm_75"));
        must(make_reference_program(problem, registry()));
        for (const bool is_key : {true, false})
          must(plan_side(is_key ? problem.k : problem.v, head_dim, layout == Layout::planar, is_key));
      }
}

TEST_CASE("every format as K with f16 values" * doctest::skip(!kIsComplete)) {
  check_cases(each_format(nullptr, "f16", Layout::planar));
}

TEST_CASE("every format as V with f16 keys" * doctest::skip(!kIsComplete)) {
  check_cases(each_format("f16", nullptr, Layout::rows));
}

TEST_CASE("every second format with itself, planar") {
  check_cases(with_many_rows(every_nth(each_format(nullptr, nullptr, Layout::planar), 2)));
}

TEST_CASE("every format with itself, rows" * doctest::skip(!kIsComplete)) {
  check_cases(each_format(nullptr, nullptr, Layout::rows));
}

TEST_CASE("every format with itself, 64 query rows" * doctest::skip(!kIsComplete)) {
  std::vector<Case> cases;
  for (const Layout layout : {Layout::planar, Layout::rows})
    for (Case test : each_format(nullptr, nullptr, layout)) {
      test.query_length = 16, test.is_causal = true;
      cases.push_back(test);
    }
  check_cases(cases);
}

TEST_CASE("the other formats as K of random pairs, rows") {
  check_cases(with_many_rows(every_nth(shuffled_pairs(), 2, 1)));
}

TEST_CASE("200 random pairs" * doctest::skip(!kIsComplete)) { check_cases(random_pairs(200)); }

}  // namespace
}  // namespace kvjit::test
