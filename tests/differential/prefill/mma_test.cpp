// prefill by mma.sync (archs without wgmma) on the CPU back-end against the oracle: f16 in one pass, other formats in
// two. Waits removed one by one must be noticed. The CPU back-end cannot notice that a stage is filled again without a
// barrier behind its product: the warps of a block take turns at each shuffle, so all have read when the first copies.
// SPDX-License-Identifier: MIT
#include "tests/differential/decode/features.hpp"
#include "tests/differential/prefill/rows.hpp"

namespace kvjit::test {
namespace {

TEST_CASE("mma.sync: f16 rows, ragged lengths, any number of blocks") {
  check_prefill({{"f16", "f16", 128, 4, 70, Layout::planar, true},  // three work tiles a head, the last one not full
                 {"f16", "f16", 128, 5, 14, Layout::rows, false},
                 {"f16", "f16", 64, 3, 30, Layout::planar, true},
                 {"f16", "f16", 64, 4, 60, Layout::rows, true, 128}},
                {700, 0, 5, 128, 129}, {0, 1, 3}, "sm_86");
  check_prefill({{"f16", "f16", 192, 3, 30, Layout::planar, true, 128}}, {300, 0, 5, 128, 129}, {0, 3}, "sm_80");
}

TEST_CASE("mma.sync: other formats in two passes, and features") {
  const auto context = open_context(DeviceKind::cpu);
  for (const FeatureCase& test :
       {FeatureCase{"kv4", "q8_0", "features = [\"causal\", \"lse\"]", 4, 60},
        {"turbo4_qjl68", "kv3", "window = [200, -1]\nfeatures = [\"causal\", \"sinks\"]", 4, 70, Layout::rows},
        {"q4_0", "tbq4_0", "softcap = 5.0\nfeatures = [\"causal\", \"mask\", \"alibi\", \"lse\"]", 3, 30}}) {
    const Planned one = planned(registry(), test, "sm_89");
    INFO(one.problem.id);
    FeatureJudge judge(context, one, 4, 700);
    judge.many_rows = ManyRows::two_pass;
    for (const int blocks : {0, 3}) CHECK_FALSE(judge.is_wrong({700, 0, 33, 256}, blocks));
  }
}

struct Mutation {
  const char *text, *broken;
};
const Mutation kMutations[] = {
    {"copy_wait<1>();\n      sync_block();\n      multiply_keys", "sync_block();\n      multiply_keys"},
    {"copy_wait<1>();\n      sync_block();\n      multiply_keys", "copy_wait<1>();\n      multiply_keys"},
    {"copy_wait<1>();\n      clear_values<Plan>(work, tile, 0, warp() * Plan::kTile);\n      sync_block();",
     "clear_values<Plan>(work, tile, 0, warp() * Plan::kTile);\n      sync_block();"},
    {"copy_wait<1>();\n      clear_values<Plan>(work, tile, 0, warp() * Plan::kTile);\n      sync_block();",
     "copy_wait<1>();\n      clear_values<Plan>(work, tile, 0, warp() * Plan::kTile);"},
    {"copy_values(tile + 1);", "copy_values(tile);"},
    {"sync_block();  // all warps have left the place of the queries", ""},
};

TEST_CASE("mma.sync: waits removed one by one are noticed") {
  for (const Mutation& mutation : kMutations) {
    INFO(std::string(mutation.text), " -> ", std::string(mutation.broken));
    Planned one = planned(registry(), FeatureCase{"f16", "f16", "features = [\"causal\", \"lse\"]", 4, 100}, "sm_86");
    Text& kernel = one.source.kernels.at(Role::prefill).text;
    std::string text = kernel.str();
    const auto at = text.find(mutation.text);
    REQUIRE(at != std::string::npos);
    text.replace(at, std::string(mutation.text).size(), mutation.broken);
    kernel = text;
    bool is_noticed = false;
    for (const unsigned order : {0u, 1u, 2u, 3u, 7u}) {  // in which lanes run
      FeatureJudge judge(open_context(DeviceKind::cpu, order), one, 3, 700);
      judge.many_rows = ManyRows::prefill;
      is_noticed |= judge.is_noticed({700, 300, 0}, 3);
    }
    CHECK(is_noticed);
  }
}

}  // namespace
}  // namespace kvjit::test
