// Features of prefill on the CPU back-end, alone and together: output and LSE must equal the oracle's over ragged
// lengths, in any number of blocks. Mutations of what features do must be noticed.
// SPDX-License-Identifier: MIT
#include "tests/differential/decode/features.hpp"

namespace kvjit::test {
namespace {

constexpr unsigned kCompileThreads = 2;
constexpr int kSequences = 4, kCapacity = 700;
// Tokens: several tiles of 128 and a part of one, none, fewer than a call has queries, whole tiles.
const std::vector<int> kLengths = {700, 0, 33, 256};

// Two work tiles of 256 query rows a head; the second one is not full.
const FeatureCase kAlone[] = {
    {"kv4", "kv4", "softcap = 5.0", 4, 70},
    {"f16", "f16", "window = [200, -1]\nfeatures = [\"causal\"]", 4, 70},
    {"kv3", "q4_0", "window = [70, 3]", 4, 70, Layout::rows},
    {"kv3", "kv4", "features = [\"mask\"]", 4, 70},
    {"q8_0", "kv2", "features = [\"mask\", \"mask_slopes\"]", 3, 30},
    {"kv4", "kv3", "features = [\"sinks\"]", 3, 30},
    {"q8_0", "q8_0", "head_dim = 64\nwindow = [127, -1]\nfeatures = [\"causal\", \"sinks\"]", 8, 40},
    {"kv4", "kv4", "head_dim = 256\nsoftcap = 5.0\nwindow = [127, -1]\nfeatures = [\"causal\", \"lse\"]", 2, 70},
    {"kv2", "kv4", "features = [\"lse\", \"causal\"]", 4, 70},
    {"tbq3_0", "kv4", "features = [\"alibi\", \"causal\"]", 4, 70},
    {"kv4", "kv4", "features = [\"packed_mask\"]", 2, 40},
    {"kv4", "q8_0", "hook = \"log_distance\"\nfeatures = [\"causal\"]", 4, 70},
    {"f16", "f16", "head_dim = 512\nwindow = [200, -1]\nfeatures = [\"causal\", \"lse\"]", 4, 40},
    {"f16", "f16", "head_dim = 512\nsoftcap = 5.0\nfeatures = [\"mask\", \"sinks\"]", 2, 70},
    {"q4_0", "q4_0", "features = [\"position_offset\", \"causal\"]", 4, 70},
    {"kv4", "q8_0", "window = [200, -1]\nfeatures = [\"token_ranges\"]", 4, 70}};

const char* const kAll =
    "softcap = 5.0\nwindow = [200, 4]\nfeatures = [\"mask\", \"mask_slopes\", \"sinks\", \"lse\", \"packed_mask\", "
    "\"position_offset\"]";
const FeatureCase kTogether[] = {
    {"kv4", "kv3", kAll, 4, 70},
    {"tbq4_0", "kv4", "softcap = 5.0\nfeatures = [\"causal\", \"mask\", \"alibi\", \"sinks\", \"lse\"]\nfuse = false",
     3, 30},
};

FeatureJudge judge_of(const std::shared_ptr<Context>& context, const Planned& one, int variant) {
  REQUIRE_MESSAGE(one.source.kernels.count(Role::prefill) == 1, one.problem.id);
  FeatureJudge judge(context, one, kSequences, kCapacity, variant);
  judge.many_rows = ManyRows::prefill;
  return judge;
}

template <class Cases>
void check_cases(const Cases& cases) {
  const auto context = open_context(DeviceKind::cpu);
  std::vector<Planned> all;
  for (const FeatureCase& test : cases) all.push_back(planned(registry(), test, "sm_90a"));
  for (Planned& one : all) one.source.kernels.erase(Role::merge);  // these calls need no merge
  warm_up(context, all, kCompileThreads);
  for (const Planned& one : all)
    for (const int variant : {0, 1, 2}) {
      FeatureJudge judge = judge_of(context, one, variant);
      INFO(one.problem.id, ", variant ", variant);
      CHECK_FALSE(judge.is_wrong(kLengths, variant == 0 ? 3 : 0));
    }
}

TEST_CASE("prefill: each feature alone, ragged sequences") { check_cases(kAlone); }
TEST_CASE("prefill: features together, ragged sequences") { check_cases(kTogether); }

struct Mutation {
  const char *keys, *text, *broken, *k = "kv4";
};
const Mutation kMutations[] = {
    // a tile too few at either end, and a tile that is not cut
    {"window = [200, -1]\nfeatures = [\"causal\"]", "first / kTokens : 0", "first / kTokens + 1 : 0"},
    {"window = [200, -1]\nfeatures = [\"causal\"]", "(end + kTokens - 1) / kTokens - first_tile : 0",
     "end / kTokens - first_tile : 0"},
    {"window = [200, -1]\nfeatures = [\"causal\"]", "tile >= work.first_whole_tile && ", ""},
    {"window = [200, -1]\nfeatures = [\"causal\"]", " && tile < work.end_whole_tile", ""},
    // packed rows begin elsewhere than the tiles
    {"window = [200, -1]\nfeatures = [\"causal\"]", "work.first_tile * kParts * kWarps + warp()", "warp()"},
    {"softcap = 5.0", "score * unit", "score", "q8_0"},  // kv4 has one scale a row, which holds the unit
    {"features = [\"mask\"]", "query_row(work, row + 8 * h)", "query_row(work, row)"},
    {"features = [\"sinks\"]", "denominator = total.denominator;", ""},
    {"features = [\"sinks\"]", "return total.rescale_factor;", "return 1.f;"},
    {"features = [\"sinks\"]", "work.head * Plan::kGroup + there", "there"},
    {"features = [\"lse\"]", "(lane() & 3) == 0 && row < Plan::kAllRows", "row % 2 == 0"},
};

TEST_CASE("prefill: broken features are noticed") {
  const auto context = open_context(DeviceKind::cpu);
  std::vector<Planned> broken;
  for (const Mutation& mutation : kMutations) {
    broken.push_back(planned(registry(), FeatureCase{mutation.k, "kv4", mutation.keys, 4, 70}, "sm_90a"));
    Text& kernel = broken.back().source.kernels.at(Role::prefill).text;
    std::string text = kernel.str();
    auto at = text.find(mutation.text);
    REQUIRE_MESSAGE(at != std::string::npos, "the kernel no longer has ", std::string(mutation.text));
    for (; at != std::string::npos; at = text.find(mutation.text, at + 1))
      text.replace(at, std::string(mutation.text).size(), mutation.broken);
    kernel = text;
    broken.back().source.kernels.erase(Role::merge);
  }
  warm_up(context, broken, kCompileThreads);
  for (std::size_t i = 0; i < broken.size(); ++i)
    CHECK_MESSAGE(judge_of(context, broken[i], 0).is_noticed(kLengths, 3), std::string(kMutations[i].text));
}

}  // namespace
}  // namespace kvjit::test
