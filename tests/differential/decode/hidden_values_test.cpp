// Tokens that a query row does not see, on the CPU back-end: whatever bytes they have, the row is that of the oracle. A
// V that is no number reaches the rows that see its token, and no other row of the tile.
// SPDX-License-Identifier: MIT
#include "tests/differential/decode/features.hpp"

namespace kvjit::test {
namespace {

constexpr unsigned kCompileThreads = 2;
constexpr int kSequences = 3, kCapacity = 300, kBadEach = 5;
const std::vector<int> kLengths = {300, 33, 97};

void check_cases(const std::vector<FeatureCase>& cases, const char* arch = "sm_90a", bool by_reference = false) {
  const auto context = open_context(DeviceKind::cpu);
  std::vector<Planned> all;
  for (const FeatureCase& test : cases) all.push_back(planned(registry(), test, arch));
  warm_up(context, all, kCompileThreads);
  for (const Planned& one : all) {
    FeatureJudge judge(context, one, kSequences, kCapacity);
    INFO(one.problem.id, " for ", arch);
    for (const int bad_each : {0, kBadEach}) {
      INFO("every ", bad_each, "th token that some rows see is bad");
      judge.poison(kLengths, bad_each);
      for (const int blocks : {1, 5}) CHECK_FALSE(judge.is_wrong_by_rows(kLengths, blocks));
      if (by_reference) CHECK_FALSE(judge.is_wrong_by_rows(kLengths, 0, true));
    }
  }
}

TEST_CASE("hidden tokens are no numbers: each way to hide, each kind of values") {
  check_cases({{"f16", "f16", "window = [70, 3]\nfeatures = [\"lse\"]", 4, 2},
               {"kv4", "bf16", "features = [\"causal\", \"lse\"]", 4, 2},
               {"q8_0", "tbq4_0", "features = [\"token_ranges\", \"lse\"]", 2, 1},
               {"fp8_e4m3", "q4_1", "features = [\"mask\", \"lse\"]", 4, 2, Layout::rows},
               {"kv4", "vllm_nvfp4", "features = [\"packed_mask\", \"lse\"]", 1, 8},
               {"kv3", "vllm_int4_per_token_head", "window = [40, -1]\nsoftcap = 5.0", 4, 3},
               {"f32", "fp8_e5m2", "hook = \"log_distance\"\nfeatures = [\"mask\"]", 2, 2}},
              "sm_90a", true);
}

TEST_CASE("hidden tokens are no numbers: teams of warps") {
  const std::string causal = "features = [\"causal\", \"lse\"]", window = "window = [70, -1]\nfeatures = [\"mask\"]";
  check_cases({{"kv4", "kv4", causal, 8, 3},     // V by ldmatrix, scales of K and V by one load
               {"q8_0", "mxfp4", window, 8, 4},  // scales of 32 values
               {"f16", "bf16", causal, 8, 3},
               {"f16", "vllm_int8_per_token_head", causal, 8, 3},  // wide scales of tokens
               {"q8_0", "q4_1", causal, 8, 3}});                   // fp16 scales that multiply values
  check_cases({{"kv4", "kv4", window, 8, 3}, {"q4_0", "atlas_turbo8", causal, 8, 3}}, "sm_80");
}

TEST_CASE("hidden tokens are no numbers: token-major heads") {
  check_cases({{"q4_0", "q8_0", "features = [\"mask\", \"lse\"]", 4, 2, Layout::rows, 8},
               {"q8_0", "q8_0", "features = [\"causal\"]", 4, 2, Layout::rows, 2}});
}

}  // namespace
}  // namespace kvjit::test
