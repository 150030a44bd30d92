// tools/verify/ggml/matrix.cpp: every case of ggml's matrix can be planned; none is refused.
// SPDX-License-Identifier: MIT
#include "tools/verify/ggml/matrix.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <set>

#include "generator/kernels/decode/plan.hpp"
#include "tools/io/files.hpp"

namespace kvjit {
namespace {

TEST_CASE("the matrix has the cases of its snapshot") {
  const std::vector<GgmlCase> cases = ggml_matrix();
  CHECK(int(cases.size()) == kGgmlCases);
  // Counts along single axes, without the cases that are listed one by one.
  const auto end = cases.end() - 34;
  const auto count = [&](auto has) { return std::count_if(cases.begin(), end, has); };
  CHECK(count([](const GgmlCase& c) { return c.is_permuted; }) == 720);
  CHECK(count([](const GgmlCase& c) { return c.has_mask; }) == 3632 + 36);
  CHECK(count([](const GgmlCase& c) { return c.max_bias > 0; }) == 1456);
  CHECK(count([](const GgmlCase& c) { return c.softcap > 0; }) == 240);
  std::map<int, long> heads;
  std::map<std::string, long> types;
  for (auto at = cases.begin(); at != end; ++at) ++heads[at->head_dim_k], ++types[at->k];
  CHECK(heads == std::map<int, long>{{40, 224},
                                     {64, 2028},
                                     {72, 1008},
                                     {80, 112},
                                     {96, 112},
                                     {128, 540},
                                     {192, 352},
                                     {256, 124},
                                     {320, 256},
                                     {512, 112},
                                     {576, 256}});
  CHECK(types["f16"] == 2412);
  CHECK(types["q8_0"] == 348);
  CHECK(types["iq4_nl"] == 336);
}

TEST_CASE("every case is planned, none refused") {
  const auto registry = Registry::load(embedded_files());
  REQUIRE(registry);
  const std::vector<GgmlCase> cases = ggml_matrix();
  std::set<std::string> specs;
  for (const GgmlCase& one : cases) specs.insert(one.toml());
  for (const char* arch : {"sm_80", "sm_90a", "sm_120a"}) {
    int refused = 0;
    for (const std::string& toml : specs) {
      const auto parsed = parse_specs(toml, "case");
      REQUIRE_MESSAGE(parsed, (parsed ? "" : render(parsed.error())));
      const auto problem = resolve(parsed->at(0), *registry, arch);
      const auto plan = problem ? plan_decode(*problem) : tl::unexpected(problem.error());
      refused += !plan;
      CHECK_MESSAGE(plan, toml, (plan ? "" : render(plan.error())));
    }
    INFO(arch);
    CHECK(refused == 0);
  }
}

}  // namespace
}  // namespace kvjit
