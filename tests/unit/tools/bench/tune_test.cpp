// tools/bench/tune.cpp: which block shapes are timed, which one is chosen, and the row that is written. The device only
// records launches; the test sets its times.
// SPDX-License-Identifier: MIT
#include "tools/bench/tune.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <set>

#include "generator/kernels/decode/plan.hpp"
#include "generator/program.hpp"
#include "tests/support/recording_device.hpp"
#include "tests/support/registry.hpp"

namespace kvjit {
namespace {

using test::registry;

Problem problem_of(const char* format, int rows = 8) {
  const std::string toml = std::string("[k]\nformat = \"") + format + "\"\n[v]\nformat = \"" + format +
                           "\"\n[attention]\nq_heads_per_kv = " + std::to_string(rows) + "\n";
  return resolve(parse_specs(toml, "s").value().at(0), registry(), "sm_90a").value();
}

// A context in which kernels of more than `most` threads spill.
struct SpillingContext : test::RecordingContext {
  int most = 1 << 20;
  Result<KernelRecord> get(const Source& source, std::stop_token stop) override {
    auto record = RecordingContext::get(source, stop);
    record->spill_bytes = source.threads > most ? 64 : 0;
    return record;
  }
};

TEST_CASE("a dozen shapes at most, each pair of warps and stages once, with the most copies of tables") {
  const auto fitting = decode_shapes(problem_of("kv4")).value();
  const auto chosen = shapes_to_measure(fitting);
  CHECK(chosen.size() == 12);
  CHECK(chosen.front() == fitting.front());
  std::set<std::tuple<int, int, int>> seen;
  for (const BlockShape& shape : chosen) {
    CHECK(seen.insert({shape.warps, shape.stages, shape.tile}).second);
    for (const BlockShape& other : fitting)
      if (other.warps == shape.warps && other.stages == shape.stages && other.tile == shape.tile)
        CHECK(other.copies <= shape.copies);
  }
}

TEST_CASE("variants turn over what the planner estimates, where a tile has room for it") {
  const Problem problem = problem_of("kv4");
  const auto large = variants_of({12, 2, 32, 32, {}, {}}, problem);
  REQUIRE(large.size() == 3);
  CHECK(large[0] == BlockShape{12, 2, 32, 32, 1, {}});
  CHECK(large[1] == BlockShape{12, 2, 32, 32, {}, false});
  CHECK(large[2] == BlockShape{12, 2, 32, 32, 1, false});
  CHECK(variants_of({12, 2, 16, 32, {}, {}}, problem) == std::vector<BlockShape>{{12, 2, 16, 32, {}, false}});
  for (const BlockShape& variant : variants_of({8, 2, 32, 1, {}, {}}, problem_of("f16", 32)))
    CHECK_FALSE(variant.subtiles);  // teams have no subtiles
}

TEST_CASE("the fastest wins if it is faster by more than the noise; then variants of the best three are timed") {
  const auto context = std::make_shared<SpillingContext>();
  const Problem problem = problem_of("kv4");
  std::vector<int> timed;
  const auto time_by = [&](auto us) {
    timed.clear();
    return tune(problem, registry(), context, [&, us](const std::shared_ptr<Program>& program) {
      timed.push_back(program->source().kernels.at(Role::decode).threads);
      return Result<std::vector<double>>(us(timed.back()));
    });
  };
  const TuneResult six = time_by([](int threads) {
                           return threads == 6 * 32 ? std::vector{8.0, 100.0} : std::vector{10.0, 100.0};
                         }).value();
  CHECK(timed.size() ==
        3 * (six.shapes.size() + 2));  // three rounds of all shapes, the planner's own and the best again
  CHECK(six.shapes[six.best].shape.warps == 6);
  CHECK_FALSE(six.shapes[six.best].shape.subtiles);  // the variants are no faster
  CHECK(six.shapes[six.best].ratio == doctest::Approx(std::sqrt(10.0 / 8)));
  const auto is_variant = [](const TunedShape& tuned) { return tuned.shape.hold_queries || tuned.shape.subtiles; };
  const auto first = std::find_if(six.shapes.begin(), six.shapes.end(), is_variant);
  CHECK(first->shape.warps == 6);  // a variant of the best; variants of the next two follow
  CHECK(std::all_of(first, six.shapes.end(), is_variant));
  std::set<std::array<int, 3>> varied;
  for (auto each = first; each != six.shapes.end(); ++each)
    varied.insert({each->shape.warps, each->shape.stages, each->shape.tile});
  CHECK(varied.size() == 3);

  // Faster in total, but not for the second cache.
  const TuneResult mixed = time_by([](int threads) {
                             return threads == 6 * 32 ? std::vector{5.0, 102.0} : std::vector{10.0, 100.0};
                           }).value();
  CHECK(mixed.best == 0);

  const TuneResult same = time_by([](int threads) { return std::vector{threads == 6 * 32 ? 9.95 : 10.0}; }).value();
  CHECK(same.best == 0);
  CHECK(same.shapes[0].ratio == 1);

  context->most = 6 * 32 - 1;
  const TuneResult spilling = time_by([](int threads) { return std::vector{threads == 6 * 32 ? 8.0 : 10.0}; }).value();
  CHECK(spilling.best == 0);
  CHECK(std::count(timed.begin(), timed.end(), 6 * 32) == 0);
  CHECK(timed.front() == 12 * 32);  // the planner's own shape is timed nevertheless
  const std::string table = tune_table("p", {"1 x 8"}, spilling);
  CHECK(table.find("spills 64 bytes") != std::string::npos);
  CHECK(to_json("p", spilling)["shapes"][1]["refused"] == "spills 64 bytes");
  CHECK(to_json("p", same)["best"] == 0);

  const auto failed = tune(
      problem, registry(), context,
      [](const std::shared_ptr<Program>&) -> Result<std::vector<double>> { return fail(Code::environment, "gone"); });
  REQUIRE_FALSE(failed);
  CHECK(failed.error().message == "gone");
}

TEST_CASE("programs of any shape take turns over one cache of a trial") {
  const auto context = std::make_shared<test::RecordingContext>();
  const Problem problem = problem_of("q4_0");
  const auto own = Program::create(context, make_program(problem, registry()).value()).value();
  KernelHarness harness = KernelHarness::make(context, own, problem, {1, 2, 100, 2}).value();
  const std::vector<float> q(2 * 8 * 128, 1.f);
  // The device is slow in the first round; the fourth shape is the fastest.
  const std::size_t shapes = shapes_to_measure(decode_shapes(problem).value()).size();
  std::vector<double>& medians = context->device->medians;
  for (int round = 0; round < 3; ++round)
    for (std::size_t i = 0; i < shapes; ++i) medians.push_back((i == 3 ? 5 : 20) * (round == 0 && i > 1 ? 10 : 1));
  medians.resize(medians.size() + 100, 20);
  const TuneResult result =
      tune(problem, registry(), context, [&](const std::shared_ptr<Program>& program) {
        harness.use(program);
        const auto timed = harness.time(q, {}, 3);
        return timed.map([](const KernelHarness::Timed& t) { return std::vector{t.timing.median_us}; });
      }).value();
  CHECK(result.best == 3);
  CHECK(result.shapes[3].ratio == doctest::Approx(4));
  CHECK(result.shapes[4].ratio == doctest::Approx(1));
  CHECK(context->device->launches.size() == 2 * 3 * (result.shapes.size() + 2));  // one cache in two copies
}

TEST_CASE("a row takes the place of the one that it measures anew") {
  const auto parse = [](const std::string& text) {
    return parse_tuning(text, "tuning/sm_90a.toml", registry()).value();
  };
  const std::string head = "[[row]]\ndevice = \"d\"\nv = \"q4_0\"\nhead_dim = 128\nrows = 8\nstages = 2\ntile = 32\n";
  const auto rows = parse(head + "k = \"q4_0\"\nwarps = 4\n" + head + "k = \"q8_0\"\nwarps = 4\n");
  const auto renewed = with_row(rows, parse(head + "k = \"q4_0\"\nwarps = 8\n")[0]);
  REQUIRE(renewed.size() == 2);
  CHECK(renewed[0].shape.warps == 8);
  CHECK(with_row(rows, parse(head + "k = \"f16\"\nwarps = 8\n")[0]).size() == 3);
}

}  // namespace
}  // namespace kvjit
