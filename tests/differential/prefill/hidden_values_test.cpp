// Prefill over caches in which memory that nobody wrote stands where tokens are hidden: rows of V, and of K, that are
// all ones, which is NaN in every format here. A query row that sees none of them must have the oracle's answer and
// LSE. A row that sees one must be NaN, where the row of V is. Clearing and spoiling are broken one by one and must be
// noticed.
// SPDX-License-Identifier: MIT
#include <cmath>

#include "tests/differential/decode/features.hpp"

namespace kvjit::test {
namespace {

constexpr unsigned kCompileThreads = 2;
constexpr int kSequences = 3, kCapacity = 450;
const std::vector<int> kLengths = {450, 0, 133};

struct HiddenCase {
  FeatureCase test;
  ManyRows many_rows = ManyRows::prefill;
  const char* arch = "sm_90a";
  bool spoils_keys = true;
};

// Tokens of a sequence whose rows are no numbers: at its end, where causal attention cuts tiles, where the windows of
// the first queries begin, and ahead of all windows. Of masks two neighbours in a
// whole tile, so that some rows see neither.
std::vector<int> spoilt_tokens(const Problem& problem, int length) {
  const int queries = problem.query_length, left = problem.features.window_left;
  if (problem.features.mask || problem.features.packed_mask)
    return length > 270 ? std::vector{length - 270, length - 269} : std::vector<int>{};
  std::vector<int> tokens = {length - 1, length - 2, length - queries / 3, length - queries / 2};
  if (left >= 0) tokens.insert(tokens.end(), {length - queries - left + queries / 4, 0, 3});
  std::erase_if(tokens, [&](int token) { return token < 0 || token >= length; });
  return tokens;
}

// A change of stored bytes of a token's row: all of it, or a half of V.
struct Spoil {
  int dimension = -1;  // -1: the whole row
  std::uint8_t low = 0xff, high = 0xff;
};

void corrupt_rows(FeatureJudge& judge, int side, const Spoil& spoil) {
  std::vector<std::uint8_t> rows = judge.cache(side).rows;
  const std::size_t row_bytes = rows.size() / std::size_t(kSequences * kKvHeads * kCapacity);
  for (int s = 0; s < kSequences; ++s)
    for (int head = 0; head < kKvHeads; ++head)
      for (const int token : spoilt_tokens(judge.problem(), kLengths[std::size_t(s)])) {
        std::uint8_t* const row = rows.data() + std::size_t((s * kKvHeads + head) * kCapacity + token) * row_bytes;
        if (spoil.dimension < 0)
          std::fill(row, row + row_bytes, std::uint8_t(0xff));
        else
          row[2 * spoil.dimension] = spoil.low, row[2 * spoil.dimension + 1] = spoil.high;
      }
  judge.set_rows(side, rows);
}

struct Found {
  std::string fault;  // empty: none
  int seeing = 0, blind = 0;
};

// Judges a call: which rows see a corrupt token follows from the formula of the features (ScoreRule).
Found judge_call(FeatureJudge& judge, int blocks, const Spoil& spoil) {
  Found found;
  const auto tried = judge.try_attend(kLengths, blocks);
  if (!tried) return {tried.error().message};
  const Problem& problem = judge.problem();
  const auto want = judge.exact(kLengths);
  const int dim = problem.v_dim(), queries = problem.query_length, heads = judge.heads();
  double error = 0, norm = 0;
  for (int s = 0; s < kSequences; ++s) {
    const int length = kLengths[std::size_t(s)];
    const ScoreRule rule(problem.features, problem.causal, judge.inputs, s, queries, length);
    for (int query = 0; query < queries; ++query)
      for (int head = 0; head < heads; ++head) {
        bool sees = false;
        for (const int token : spoilt_tokens(problem, length)) sees |= rule.score(head, query, token, 0.) != -INFINITY;
        (sees ? found.seeing : found.blind) += 1;
        const std::size_t row = std::size_t((s * heads + head) * queries + query);
        for (int d = 0; d < dim; ++d) {
          const double out = tried->out[row * std::size_t(dim) + std::size_t(d)],
                       exact = want.out[row * std::size_t(dim) + std::size_t(d)];
          if (sees && (spoil.dimension < 0 || spoil.dimension == d)) {
            if (!std::isnan(out)) return {fmt::format("row {} sees no number and is one at {}", row, d)};
            continue;
          }
          if (std::isnan(out)) return {fmt::format("row {} of sequence {} is NaN at {}", row, s, d)};
          error += (out - exact) * (out - exact), norm += exact * exact;
        }
        if (tried->lse.empty() || sees) continue;
        if (tried->lse[row] != want.lse[row] &&
            !(std::abs(tried->lse[row] - want.lse[row]) <=
              kMaxKernelError * std::max({1., std::abs(want.lse[row]), want.largest[row]})))
          return {fmt::format("LSE of row {}: {} and not {}", row, tried->lse[row], want.lse[row])};
      }
  }
  if (error > 0 && !(std::sqrt(error / norm) <= kMaxKernelError))
    found.fault = fmt::format("error {}", std::sqrt(error / norm));
  return found;
}

Found judge_case(const std::shared_ptr<Context>& context, const Planned& one, const HiddenCase& hidden, int blocks,
                 const Spoil& spoil) {
  FeatureJudge judge(context, one, kSequences, kCapacity);
  judge.many_rows = hidden.many_rows;
  corrupt_rows(judge, 1, spoil);
  if (hidden.spoils_keys && spoil.dimension < 0) corrupt_rows(judge, 0, spoil);
  return judge_call(judge, blocks, spoil);
}

const char *const kCausal = "features = [\"causal\", \"lse\"]",
                  *const kWindow = "window = [200, -1]\nfeatures = [\"causal\", \"lse\", \"sinks\"]";
const HiddenCase kCases[] = {
    {{"f16", "f16", kCausal, 4, 70}},
    {{"kv4", "q4_0", kWindow, 4, 70}},
    {{"q8_0", "bf16", "window = [70, 3]", 4, 70, Layout::rows}},                             // tiles in parts
    {{"kv4", "kv4", kCausal, 3, 30}},                                                        // one block a consumer
    {{"kv3", "q8_0", kCausal, 4, 15}},                                                       // consumers that alternate
    {{"f16", "f16", "head_dim = 256\nwindow = [200, -1]\nfeatures = [\"causal\"]", 4, 40}},  // one stage
    {{"f16", "f16", "head_dim = 512\nwindow = [200, -1]\nfeatures = [\"causal\", \"lse\"]", 4, 40}},
    {{"kv4", "q4_1", "features = [\"mask\", \"lse\"]", 4, 70}, ManyRows::prefill, "sm_90a", false},
    {{"kv4", "kv4", "softcap = 5.0\nfeatures = [\"packed_mask\"]", 2, 40}},
    {{"kv4", "fp8_e4m3", "window = [200, 3]\nfeatures = [\"token_ranges\"]", 4, 70}},
    {{"kv4", "q8_0", kCausal, 4, 60}, ManyRows::two_pass},
    {{"q8_0", "tbq4_0", kWindow, 4, 70, Layout::rows}, ManyRows::two_pass},
    {{"f16", "f16", kWindow, 4, 70}, ManyRows::prefill, "sm_86"},
    {{"f16", "f16", "features = [\"packed_mask\"]", 4, 30}, ManyRows::prefill, "sm_80"},
    {{"kv4", "q8_0", kCausal, 4, 60}, ManyRows::two_pass, "sm_89"}};

TEST_CASE("hidden tokens are no numbers: rows that do not see them have the oracle's answer, the others are NaN") {
  const auto context = open_context(DeviceKind::cpu);
  std::vector<Planned> all;
  for (const HiddenCase& hidden : kCases) all.push_back(planned(registry(), hidden.test, hidden.arch));
  warm_up(context, all, kCompileThreads);
  for (std::size_t i = 0; i < all.size(); ++i)
    for (const int blocks : {i % 2 ? 0 : 3}) {
      INFO(all[i].problem.id, " for ", std::string(kCases[i].arch));
      const Found found = judge_case(context, all[i], kCases[i], blocks, {});
      CHECK(found.fault == "");
      CHECK(found.seeing > 0);
      CHECK(found.blind > 0);
    }
}

TEST_CASE("one value of a row is no number: rows that see it are NaN in its dimension alone") {
  const auto context = open_context(DeviceKind::cpu);
  for (const HiddenCase& hidden : {kCases[0], kCases[12], HiddenCase{{"kv4", "f16", kWindow, 4, 70}},
                                   HiddenCase{{"f16", "f16", kCausal, 4, 15}}}) {
    const Planned one = planned(registry(), hidden.test, hidden.arch);
    for (const Spoil& spoil : {Spoil{0, 0x00, 0x7e}, Spoil{77, 0xff, 0xfd}, Spoil{127, 0x01, 0x7c}}) {
      INFO(one.problem.id, ", dimension ", spoil.dimension);
      CHECK(judge_case(context, one, hidden, 0, spoil).fault == "");
    }
  }
}

struct Mutation {
  std::size_t test;  // of kCases
  const char *text, *broken;
  int dimension = -1;  // of a value that is no number; -1: whole rows are
};
const Mutation kMutations[] = {
    {0, "if (is_v) clear_values<Plan>", "if (false) clear_values<Plan>"},
    {1, "if constexpr (kIsV) clear_values<Plan>", "if constexpr (false) clear_values<Plan>"},
    {1, "(Plan::kHidesFirst && tile < work.first_whole_tile)", "false"},
    {0, "|| tile >= work.end_whole_tile;\n}\n// The bits", ";\n}\n// The bits"},
    {7, "return Plan::kHidesByScore || ", "return "},
    {0, "if (b == kBlocks - 1) corrupt_rows", "if (false) corrupt_rows"},
    {0, "row + b * kBlockRows + 8 * h, tile", "row + 8 * h, tile"},
    {0, "rule.sees(work, row + b * kBlockRows + 8 * h, tile * Plan::kTokens + token)", "true"},
    {6, "(warp() - Plan::kWarps) / 4 * (kSums / 4)", "0", 300},
    {12, "clear_values<Plan>(work, tile, 0, warp() * Plan::kTile);\n      sync_block", "sync_block"},
    {0, "half == kMinusZero ? 0u : kMinusZero", "0u"},
};

TEST_CASE("hidden tokens that are no numbers: a broken producer or consumer is noticed") {
  const auto context = open_context(DeviceKind::cpu);
  for (const Mutation& mutation : kMutations) {
    HiddenCase hidden = kCases[mutation.test];
    hidden.spoils_keys = false;  // rows that see such a key are NaN by their scores
    Planned one = planned(registry(), hidden.test, hidden.arch);
    Text& kernel = one.source.kernels.at(Role::prefill).text;
    std::string text = kernel.str();
    const auto at = text.find(mutation.text);
    REQUIRE_MESSAGE(at != std::string::npos, "the kernel no longer has ", std::string(mutation.text));
    text.replace(at, std::string(mutation.text).size(), mutation.broken);
    kernel = text;
    CHECK_MESSAGE(judge_case(context, one, hidden, 0, {mutation.dimension}).fault != "", std::string(mutation.text));
  }
}

}  // namespace
}  // namespace kvjit::test
