// Decode of many query rows on the CPU back-end, against the oracle: teams of warps, which share
// tiles as warpgroups or as single warps, and divide dimensions of V or query rows.
// SPDX-License-Identifier: MIT
#include "tests/differential/harness.hpp"

namespace kvjit::test {
namespace {

constexpr unsigned kCompileThreads = 2;
constexpr const char* kWarpgroupArch = "sm_90a";  // has wgmma
constexpr const char* kWarpArch = "sm_80";        // has no wgmma

// Tokens: none, less than a tile, whole tiles of a team, one more. The last team of some calls has a single tile.
const std::vector<int> kLengths = {257, 0, 40, 1, 128};
constexpr int kSequences = 5;

void check_rows(const std::vector<Case>& cases, const char* arch) {
  const auto context = open_context(DeviceKind::cpu), shuffled = open_context(DeviceKind::cpu, 7);
  std::vector<Planned> all;
  for (const Case& test : cases) all.push_back(planned(registry(), test, arch));
  warm_up(context, all, kCompileThreads);
  for (const Planned& one : all) {
    INFO(one.test.name(), " for ", arch);
    Judge judge(context, one, kSequences), again(shuffled, one, kSequences);
    for (const int blocks : {1, 7}) {
      const KernelHarness::Call call{0, kLengths, blocks, false};
      const auto out = judge.check(call);
      CHECK(must(again.attend(call)).out == out);
    }
  }
}

// Returns the team that explain() reports.
std::string team_of(const Case& test, const char* arch) {
  for (const Decision& decision : planned(registry(), test, arch).source.decisions)
    if (decision.what == "team") return decision.choice + ": " + decision.why;
  return "";
}

TEST_CASE("many query rows by warpgroups") {
  check_rows({{"kv4", "kv4", 128, 8, 8, Layout::planar, true},
              {"kv4", "tbq4_0", 128, 8, 4, Layout::rows, true},
              {"f16", "f16", 128, 8, 3, Layout::planar, true},          // 24 query rows: one block of columns is empty
              {"q8_0", "q4_0", 128, 7, 5, Layout::rows, true},          // one scale for 32 values
              {"q8_0", "vllm_nvfp4", 128, 8, 8, Layout::planar, true},  // V of one block a head, a scale for 16 values
              {"tbq3_0", "q4_1", 256, 4, 8, Layout::planar, false},     // minima, which are added to each value
              {"amesianx_tbqp3_1", "amesianx_tbqp3_1", 128, 4, 8, Layout::planar, true}},  // residual signs
             kWarpgroupArch);
}

TEST_CASE("many query rows by warps, each for itself") {
  check_rows({{"kv4", "kv4", 128, 8, 8, Layout::planar, true},
              {"kv4", "tbq4_0", 128, 8, 4, Layout::rows, true},
              {"kv2", "kv2", 128, 4, 8, Layout::planar, true},
              {"tbq4_0", "q8_0", 256, 8, 2, Layout::rows, false},
              {"f16", "bf16", 64, 8, 8, Layout::planar, true}},
             kWarpArch);
}

TEST_CASE("where the packing of V does not divide, a team shares the query rows") {
  const std::vector<Case> cases = {{"q8_0", "turbo_split_54", 128, 8, 4, Layout::planar, true},  // an outlier mask on V
                                   {"f16", "vllm_k4_nc", 128, 8, 8, Layout::planar, true}};  // rows scaled to length
  for (const char* arch : {kWarpgroupArch, kWarpArch}) {
    for (const Case& test : cases) CHECK(team_of(test, arch).find("the query rows") != std::string::npos);
    check_rows(cases, arch);
  }
}

TEST_CASE("more query rows than a block takes come in query chunks") {
  for (const char* arch : {kWarpgroupArch, kWarpArch})
    check_rows({{"kv4", "q4_0", 128, 13, 5, Layout::planar, true},  // 65 query rows in chunks of 40 and 25
                {"f16", "f16", 72, 5, 32, Layout::rows, false},
                {"f16", "f16", 512, 20, 1, Layout::rows, false}},  // one warp
               arch);
}

TEST_CASE("scales of V far apart, and a token far above the rest, in a team") {
  constexpr int kTokens = 1024;
  const auto context = open_context(DeviceKind::cpu);
  for (const char* arch : {kWarpgroupArch, kWarpArch})
    for (const char* format : {"q4_0", "tbq4_0"}) {  // several scales a token; one scale a token
      const Planned one = planned(registry(), {"f16", format, 128, 4, 8, Layout::planar, false}, arch);
      for (const float v_factor : {1e-3f, 200.f})
        for (const int sink : {0, 40}) {  // a token of the team's first warp, and of another
          Judge judge(context, one, 1, kTokens);
          judge.reshape(v_factor, 1.f, 17.f, sink);
          INFO("V times ", v_factor, ", sink ", sink, ", ", arch);
          judge.check({kTokens, {}, 2, false});
        }
    }
}

// K is 15 steps from the minimum of a head, so all its codes are above 0. The product with the codes and the product
// with the minimum are large and nearly cancel, so the sum of Q must be that of the rounded queries.
TEST_CASE("the sum of Q that a minimum is multiplied with is that of the rounded Q") {
  const auto context = open_context(DeviceKind::cpu);
  const auto error = [&](const Registry& registry) {
    const Case test{"vllm_v4", "vllm_v4", 128, 8, 4, Layout::rows, false};
    Spec spec = must(parse_specs(test.toml(), test.name())).at(0);
    spec.q_type = Element::f32;
    const Problem problem = must(resolve(spec, registry, kWarpArch));
    Judge judge(context, {test, problem, must(make_program(problem, registry))});
    return relative_error(must(judge.attend({257, {}, 0, false})).out, judge.exact({257}));
  };
  const double exact =
      error(changed_registry("kernels/decode/query_fragments.cuh", "f32_from_f16(f16_from_f32(q)) : q", "q : q"));
  CHECK(exact > 1.3 * error(registry()));
}

TEST_CASE("what the warps of a team share, by rows, head_dim and arch") {
  const auto of = [](int head_dim, int gqa, int queries, const char* arch) {
    return team_of({"kv4", "kv4", head_dim, gqa, queries, Layout::planar, true}, arch);
  };
  CHECK(of(128, 8, 2, kWarpgroupArch).empty());
  CHECK(of(128, 8, 3, kWarpgroupArch).find("4 warps, as a warpgroup (wgmma)") == 0);
  CHECK(of(256, 8, 8, kWarpgroupArch).find("4 warps, as a warpgroup (wgmma)") == 0);
  CHECK(of(128, 8, 4, kWarpArch).find("2 warps: they share the dimensions of V: 64 sums") == 0);
  CHECK(of(128, 8, 8, kWarpArch).find("4 warps: they share the dimensions of V: 64 sums") == 0);
  CHECK(of(256, 8, 2, kWarpArch).find("2 warps: they share the dimensions of V: 64 sums") == 0);
}

}  // namespace
}  // namespace kvjit::test
