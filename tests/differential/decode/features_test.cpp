// Attention features on the CPU back-end, alone and together, over 2-, 3- and 4-bit caches. Output and lse must equal
// the oracle's, for any schedule.
// SPDX-License-Identifier: MIT
#include "tests/differential/decode/features.hpp"

namespace kvjit::test {
namespace {

constexpr unsigned kCompileThreads = 2;
constexpr int kSequences = 5, kCapacity = 900;
// Tokens: more tiles than a block has warps, none, one, both sides of a tile's border.
const std::vector<int> kLengths = {900, 0, 1, 33, 128};

const FeatureCase kAlone[] = {{"kv4", "kv4", "softcap = 5.0"},
                              {"kv3", "kv4", "features = [\"mask\"]", 4, 2},
                              {"kv4", "kv2", "features = [\"mask\", \"mask_slopes\"]", 3},
                              {"kv4", "kv3", "features = [\"sinks\"]"},
                              {"kv2", "kv4", "features = [\"lse\", \"causal\"]", 2, 3},
                              {"kv4", "tbq4_0", "window = [70, 3]", 2, 2, Layout::rows},
                              {"tbq3_0", "kv4", "features = [\"alibi\", \"causal\"]", 4, 2},
                              {"kv4", "kv4", "features = [\"packed_mask\"]", 1, 8},
                              {"kv4", "q8_0", "hook = \"log_distance\"\nfeatures = [\"causal\"]", 4, 3},
                              {"q4_0", "q4_0", "features = [\"position_offset\", \"causal\"]", 2, 2},
                              {"kv4", "kv3", "features = [\"token_ranges\"]", 4, 1}};

const char* const kAll =
    "softcap = 5.0\nwindow = [90, 4]\nfeatures = [\"mask\", \"mask_slopes\", \"sinks\", \"lse\", \"packed_mask\", "
    "\"position_offset\"]";
const char* const kRanged = "window = [90, 4]\nfeatures = [\"mask\", \"sinks\", \"lse\", \"token_ranges\"]";
const char* const kAllCausal =
    "softcap = 5.0\nwindow = [90, -1]\nfeatures = [\"causal\", \"mask\", \"alibi\", \"sinks\", \"lse\"]";
const FeatureCase kTogether[] = {
    {"kv4", "kv3", kAll, 4, 2},
    {"kv3", "kv2", kAllCausal, 4, 1, Layout::rows},
    {"kv2", "tbq4_0", "softcap = 5.0\nfeatures = [\"causal\", \"mask\", \"alibi\", \"sinks\", \"lse\"]\nfuse = false",
     3, 5},
    {"tbq4_0", "kv4", std::string(kAll) + "\nsparse_v = 1e-9", 8, 1},
    {"kv4", "tbq3_0", kAll, 4, 1, Layout::rows, 8},
    {"kv4", "q4_0", kRanged, 2, 2},
};

template <class Cases>
void check_cases(const Cases& cases, const char* arch = "sm_90a") {
  const auto context = open_context(DeviceKind::cpu);
  std::vector<Planned> all;
  for (const FeatureCase& test : cases) all.push_back(planned(registry(), test, arch));
  warm_up(context, all, kCompileThreads, false);
  for (const Planned& one : all)
    for (const int variant : {0, 1, 2}) {
      FeatureJudge judge(context, one, kSequences, kCapacity, variant);
      INFO(one.problem.id, ", variant ", variant);
      for (const int blocks : {1, 3, 17}) {
        INFO("blocks ", blocks);
        CHECK_FALSE(judge.is_wrong(kLengths, blocks));
      }
      CHECK_FALSE(judge.is_wrong(kLengths, 0, true));
    }
}

TEST_CASE("each feature alone, ragged sequences, splits") { check_cases(kAlone); }
TEST_CASE("features together, ragged sequences, splits") { check_cases(kTogether); }

// Teams of warps: 24 query rows as a warpgroup and by warps; 66 rows in two query chunks, of which the last is not
// full.
TEST_CASE("features together, many query rows") {
  const FeatureCase many[] = {{"kv3", "kv4", kAll, 8, 3}};
  check_cases(many);
  check_cases(many, "sm_80");
  const FeatureCase chunks[] = {{"kv4", "kv4", kAllCausal, 3, 22}};
  CHECK(planned(registry(), chunks[0], "sm_90a").source.query_chunks > 1);
  check_cases(chunks);
}

// A sink counts however low it is: a row that sees no token has it as its lse.
TEST_CASE("sinks far below all scores") {
  const auto context = open_context(DeviceKind::cpu);
  FeatureJudge judge(context, planned(registry(), {"kv4", "kv3", "features = [\"sinks\", \"lse\"]"}, "sm_90a"), 2, 40);
  for (const float sink : {-1e4f, -4e29f, -1e30f, -1e38f}) {
    std::fill(judge.inputs.sinks.begin(), judge.inputs.sinks.end(), sink);
    CHECK_FALSE(judge.is_wrong({0, 40}, 1));
    CHECK_FALSE(judge.is_wrong({0, 40}, 0, true));
  }
}

// Each block makes the schedule of a single sequence by itself, if tiles may be cut.
TEST_CASE("features that cut tiles, one sequence") {
  const auto context = open_context(DeviceKind::cpu);
  for (const FeatureCase& test : {kTogether[5], kAlone[5], kAlone[10]}) {
    FeatureJudge judge(context, planned(registry(), test, "sm_90a"), 1, kCapacity);
    INFO(test.keys);
    for (const int length : {900, 128, 33, 1})
      for (const int blocks : {1, 3, 17}) CHECK_FALSE(judge.is_wrong({length}, blocks));
    if (judge.problem().features.token_ranges) judge.inputs.token_ranges = {300, 420};
    for (const int blocks : {1, 3, 17}) CHECK_FALSE(judge.is_wrong({900}, blocks));
  }
}

// A block takes all heads of a token: tiles of 32 and 16 tokens, masks and slopes of each head, windows that cut tiles.
TEST_CASE("features with token-major heads") {
  const FeatureCase cases[] = {
      {"q4_0", "q8_0", "features = [\"mask\"]", 4, 2, Layout::rows, 8},
      {"q4_1", "f16", kAllCausal, 2, 3, Layout::rows, 8},
      {"q8_0", "q8_0", kRanged, 4, 2, Layout::rows, 8},
      {"q8_0", "q4_0", "hook = \"log_distance\"\nfeatures = [\"causal\"]", 4, 2, Layout::rows, 2}};
  for (const FeatureCase& test : cases)
    CHECK(planned(registry(), test, "sm_90a").source.kernels.at(Role::decode).text.str().find("TokenRing") !=
          std::string::npos);
  check_cases(cases);
}

// A context of 700 tokens in three parts; no query sees a token of the last part. Each call gets the number of tokens
// behind its part as position_offset, and one call has the sinks. An engine that splits a context over devices, or
// shares a prefix between sequences, makes such calls.
TEST_CASE("parts of a context merge to the whole context") {
  const auto context = open_context(DeviceKind::cpu);
  const std::string keys =
      "softcap = 5.0\nwindow = [400, -1]\nfeatures = [\"causal\", \"alibi\", \"sinks\", \"lse\", \"position_offset\"]";
  const Planned one = planned(registry(), FeatureCase{"kv4", "kv3", keys, 4, 2}, context->backend()->info().arch);
  constexpr int kAll = 700, kFirst = 330;
  FeatureJudge whole(context, one, 1, kAll);
  whole.inputs.position_offset = 0, whole.inputs.position_offsets.clear();
  for (float& slope : whole.inputs.slopes) slope /= 100;  // otherwise distant tokens would hardly count
  const auto exact = whole.exact({kAll});
  CHECK_FALSE(whole.is_wrong({kAll}, 3));

  FeatureJudge rest(context, one, 1, kAll);  // the cache of the second part begins with token kFirst
  for (const int side : {0, 1}) {
    auto rows = whole.cache(side).rows;
    const auto row = std::ptrdiff_t(rows.size() / (kKvHeads * kAll));
    for (int head = 0; head < kKvHeads; ++head) {
      const auto first = rows.begin() + head * kAll * row;
      std::fill(std::copy(first + kFirst * row, first + kAll * row, first), first + kAll * row, std::uint8_t(0xff));
    }
    rest.set_rows(side, rows);
  }
  rest.inputs = whole.inputs;
  whole.inputs.leaves_sinks = true;
  whole.inputs.position_offset = kAll - kFirst;
  std::vector<KernelHarness::Outcome> parts = {whole.attend({kFirst}, 2), rest.attend({kAll - kFirst}, 1)};
  whole.inputs.position_offset = 2 * kAll;  // the window ends before the queries
  parts.push_back(whole.attend({kFirst}, 1));
  CHECK(std::all_of(parts[2].lse.begin(), parts[2].lse.end(), [](float x) { return x == -INFINITY; }));
  std::fill(parts[2].out.begin(), parts[2].out.end(), NAN);  // a part without tokens must not be read
  const auto merged = must(whole.harness().merge(parts));
  CHECK(relative_error(merged.out, exact.out) <= kMaxKernelError);
  CHECK(relative_error(merged.lse, exact.lse) <= kMaxKernelError);
  CHECK(relative_error(parts[0].out, exact.out) > 0.1);  // neither part equals the whole
  CHECK(relative_error(parts[1].out, exact.out) > 0.1);

  const auto nothing = must(whole.harness().merge({parts[2], parts[2]}));
  CHECK(std::all_of(nothing.out.begin(), nothing.out.end(), [](float x) { return x == 0; }));
  CHECK(std::all_of(nothing.lse.begin(), nothing.lse.end(), [](float x) { return x == -INFINITY; }));
  CHECK_FALSE(whole.harness().merge(std::vector<KernelHarness::Outcome>(17, parts[0])));
  CHECK_FALSE(whole.harness().merge({}));
}

TEST_CASE("the order of lanes and warps does not matter to features") {
  for (const unsigned seed : {7u, 12345u}) {
    const auto context = open_context(DeviceKind::cpu, seed);
    for (const FeatureCase& test : {kTogether[0], FeatureCase{"kv3", "kv4", kAll, 8, 3}}) {
      FeatureJudge judge(context, planned(registry(), test, context->backend()->info().arch), kSequences, kCapacity);
      CHECK_FALSE(judge.is_wrong(kLengths, 1));
      CHECK_FALSE(judge.is_wrong(kLengths, 7));
    }
  }
}

TEST_CASE("new tokens are stored and attended to with features") {
  const auto context = open_context(DeviceKind::cpu);
  const std::string keys =
      "append = true\nsoftcap = 5.0\nwindow = [90, 0]\nfeatures = [\"causal\", \"alibi\", \"sinks\"]";
  const Planned one = planned(registry(), FeatureCase{"q8_0", "kv4", keys, 4, 2}, context->backend()->info().arch);
  const std::vector<int> lengths = {300, 2, 65};
  FeatureJudge judge(context, one, 3, 300);
  for (const int side : {0, 1}) {
    auto rows = judge.cache(side).rows;
    const std::size_t row = rows.size() / (3 * kKvHeads * 300);
    for (std::size_t pair = 0; pair < 3 * kKvHeads; ++pair)
      std::fill_n(rows.begin() + std::ptrdiff_t((pair * 300 + std::size_t(lengths[pair / kKvHeads]) - 2) * row),
                  2 * row, std::uint8_t(0xff));
    judge.set_rows(side, rows);
    judge.harness().set_new_tokens(side, new_token_rows(judge.cache(side).x, judge.harness().shape(), lengths, 2, 128));
  }
  CHECK_FALSE(judge.is_wrong(lengths, 4));
}

TEST_CASE("every launch names its features") {
  const auto context = open_context(DeviceKind::cpu);
  FeatureJudge judge(context, planned(registry(), kTogether[1], context->backend()->info().arch), 1, 64);
  using Names = std::vector<std::string>;
  CHECK(judge.attend({64}, 1).report.features ==
        Names{"causal", "softcap 5", "window [90, -1]", "alibi", "mask", "sinks", "lse"});
  judge.inputs.leaves_sinks = true;
  CHECK(judge.attend({64}, 1).report.features ==
        Names{"causal", "softcap 5", "window [90, -1]", "alibi", "mask", "lse"});
  CHECK_FALSE(judge.is_wrong({64}, 1));
  judge.inputs.sinks.clear();  // without the feature the call needs no sinks
  CHECK_FALSE(judge.is_wrong({64}, 1));
}

TEST_CASE("rows that see nothing give zeros and minus infinity, never NaN") {
  const auto context = open_context(DeviceKind::cpu);
  FeatureJudge judge(context, planned(registry(), kTogether[1], context->backend()->info().arch), 2, 100);
  judge.inputs.leaves_sinks = true;
  judge.inputs.mask_strides = {};
  judge.inputs.mask.assign(100, -std::numeric_limits<float>::infinity());
  for (const bool is_reference : {false, true}) {
    const auto outcome = judge.attend({100, 40}, 3, is_reference);
    CHECK(std::all_of(outcome.out.begin(), outcome.out.end(), [](float x) { return x == 0; }));
    CHECK(std::all_of(outcome.lse.begin(), outcome.lse.end(), [](float x) { return x == -INFINITY; }));
  }
  // Hide the first tokens, so that a warp sees no token for several tiles.
  for (std::size_t t = 97; t < 100; ++t) judge.inputs.mask[t] = 0.5f;
  CHECK_FALSE(judge.is_wrong({100, 100}, 1));
  CHECK_FALSE(judge.is_wrong({100, 100}, 4));
}

// Makes masks that hide every third token from all queries, and fills the rows of these tokens with 0xff: NaN.
void hide_thirds(FeatureJudge& judge, const std::vector<int>& lengths, bool has_values) {
  const auto capacity = std::size_t(judge.harness().shape().tokens);
  FeatureInputs& inputs = judge.inputs;
  inputs.mask_strides = inputs.packed_strides = {};
  inputs.packed_tokens = 0;
  if (!inputs.mask.empty()) inputs.mask.assign(capacity, 0.25f);
  if (!inputs.packed_mask.empty()) inputs.packed_mask.assign((capacity + 31) / 32, ~0u);
  for (std::size_t t = 1; t < capacity; t += 3) {
    if (!inputs.mask.empty()) inputs.mask[t] = -std::numeric_limits<float>::infinity();
    if (!inputs.packed_mask.empty()) inputs.packed_mask[t / 32] &= ~(1u << t % 32);
  }
  for (int side = 0; side < (has_values ? 2 : 1); ++side) {
    auto rows = judge.cache(side).rows;
    const std::size_t row = rows.size() / (lengths.size() * kKvHeads * capacity);
    for (std::size_t i = 0; i * row < rows.size(); ++i)
      if (i % capacity % 3 == 1) std::fill_n(rows.begin() + std::ptrdiff_t(i * row), row, std::uint8_t(0xff));
    judge.set_rows(side, rows);
  }
}

TEST_CASE("masks hide tokens whatever their rows of K hold; for the reference kernel, of V too") {
  const auto context = open_context(DeviceKind::cpu);
  const std::vector<int> lengths = {300, 40};
  for (const FeatureCase& test :
       {FeatureCase{"f16", "kv4", "features = [\"mask\"]"},
        {"kv4", "f16", "softcap = 5.0\nfeatures = [\"alibi\", \"packed_mask\"]", 4, 2},
        {"q8_0", "q8_0", "hook = \"log_distance\"\nfeatures = [\"mask\", \"mask_slopes\", \"lse\"]", 8, 4}}) {
    const Planned one = planned(registry(), test, "sm_90a");
    INFO(test.keys);
    for (const bool is_reference : {false, true}) {
      FeatureJudge judge(context, one, 2, 300);
      hide_thirds(judge, lengths, is_reference);
      CHECK_FALSE(judge.is_wrong(lengths, 0, is_reference));
    }
  }
  const FeatureCase masked{"f16", "kv4", "features = [\"mask\"]"};
  struct Broken {
    const char *file, *from, *to;
    bool is_reference;
  };
  for (const Broken& broken : {Broken{"features/mask.cuh", "loaded.half == kMinusInfinity", "false", false},
                               {"kernels/reference/features.cuh", "s == minus_infinity()", "false", true}}) {
    const Planned one = planned(changed_registry(broken.file, broken.from, broken.to), masked, "sm_90a");
    FeatureJudge judge(context, one, 2, 300);
    hide_thirds(judge, lengths, broken.is_reference);
    CHECK_MESSAGE(judge.is_wrong(lengths, 0, broken.is_reference), std::string(broken.file));
  }
}

// Fills every tile that no query sees with 0xff, which no cache holds. Tiles that hold a visible row stay as they are.
void corrupt_unseen(FeatureJudge& judge, const std::vector<int>& lengths, int tile) {
  const FeatureSet& set = judge.problem().features;
  const auto capacity = std::size_t(judge.harness().shape().tokens);
  for (const int side : {0, 1}) {
    auto rows = judge.cache(side).rows;
    const std::size_t row = rows.size() / (lengths.size() * kKvHeads * capacity);
    for (std::size_t pair = 0; pair < lengths.size() * kKvHeads; ++pair) {
      const int first_query = lengths[pair / kKvHeads] - judge.problem().query_length + judge.inputs.position_offset;
      const int last_query = first_query + judge.problem().query_length - 1;
      const auto first = std::size_t((first_query - set.window_left) / tile * tile),
                 end = std::size_t((last_query + set.window_right) / tile * tile + tile);
      const auto fill = [&](std::size_t from, std::size_t to) {
        std::fill(rows.begin() + std::ptrdiff_t((pair * capacity + from) * row),
                  rows.begin() + std::ptrdiff_t((pair * capacity + to) * row), std::uint8_t(0xff));
      };
      fill(0, first);
      fill(end, capacity);
    }
    judge.set_rows(side, rows);
  }
}

TEST_CASE("a window reads no tile outside it") {
  const auto context = open_context(DeviceKind::cpu);
  const std::string arch = context->backend()->info().arch;
  const std::vector<int> lengths = {900, 700};
  const Planned one = planned(registry(), kTogether[0], arch);
  FeatureJudge judge(context, one, 2, kCapacity);
  judge.inputs.position_offset = -300;
  judge.inputs.position_offsets.clear();
  const auto before = judge.attend(lengths, 5);
  CHECK_FALSE(judge.is_wrong(lengths, 5));
  const auto row_bytes = [](const SideInfo& side) { return side.code_row_bytes + side.scale_row_bytes; };
  CHECK(before.report.cache_bytes ==
        2ll * kKvHeads * (90 + 2 + 4) * (row_bytes(one.source.k) + row_bytes(one.source.v)));
  corrupt_unseen(judge, lengths, one.source.tile_tokens);
  CHECK(judge.attend(lengths, 5).out == before.out);
}

// Mutation test: one word of a fragment is changed at a time, and the calls above must notice it.
struct Mutation {
  int together;  // index into kTogether
  const char *file, *from, *to;
};
constexpr Mutation kMutations[] = {
    {0, "features/softcap.cuh", "+ 1.f)", "+ 1.5f)"},
    {1, "features/alibi.cuh", "token - row.position", "token - row.position + 1"},
    {0, "features/mask.cuh", "args.slopes[at.head] * kLog2E : kLog2E", "kLog2E : kLog2E"},
    {0, "features/mask.cuh", "at.head * args.mask_head_stride", "at.head * args.mask_query_stride"},
    {0, "features/mask.cuh", "return score + f32_from_f16(loaded.half)", "return score - f32_from_f16(loaded.half)"},
    {0, "features/packed_mask.cuh", "bit & 31", "bit + 1 & 31"},
    {0, "features/packed_mask.cuh", "bit < 0 ||", ""},
    {0, "features/token_range.cuh", "at += args_.position_offset +", "at +="},
    {5, "features/token_range.cuh", "if (at < least) at = least;", ""},
    {5, "features/token_range.cuh", "if (at > most) at = most;", ""},
    {0, "args/seen_tokens.cuh", "position - left, length", "position - left + 1, length"},
    {0, "args/seen_tokens.cuh", "position + right + 1, length", "position + right, length"},
    {0, "features/sinks.cuh", "total.denominator * rescale_factor + exp2_fast(end.sink - row_max)",
     "total.denominator * rescale_factor"},
    {0, "features/sinks.cuh", "total.rescale_factor *= rescale_factor;", ""},
    {2, "kernels/decode/merge.cuh", "end.of(all, at == 0)", "all"},
    {4, "kernels/decode/token_heads_features.cuh", "own_head<Plan>() * 8", "0"},
    {4, "kernels/decode/token_heads_features.cuh", "return token_of_row<Plan::kTile>(", "return ("},
    {4, "kernels/decode/token_heads.cuh", "Own::apply(x, loaded, token, softmax);", ""},
    {0, "features/lse.cuh", "* kLn2 :", ":"},
    {2, "kernels/decode/features.cuh", "float(softmax.reference_max[n][i % 2])", "0.f"},
    {0, "kernels/decode/features.cuh", "loaded.of[kLoadsAhead ? i : 0]", "loaded.of[0]"},
    {0, "kernels/decode/tile_scheduler.cuh", "before + int(tile - begin),", "int(tile - begin),"},
};

TEST_CASE("a broken feature is noticed") {
  const auto context = open_context(DeviceKind::cpu);
  const std::string arch = context->backend()->info().arch;
  for (const Mutation& mutation : kMutations) {
    const FeatureCase& test = kTogether[mutation.together];
    const Registry broken = changed_registry(mutation.file, mutation.from, mutation.to);
    FeatureJudge judge(context, planned(broken, test, arch), kSequences, kCapacity);
    if (judge.problem().features.position_offset) judge.inputs.position_offset = -40;  // both edges lie inside
    CHECK_MESSAGE((judge.is_noticed(kLengths, 3) || judge.is_noticed(kLengths, 17)), std::string(mutation.file),
                  ": not noticed: ", std::string(mutation.from), " -> ", std::string(mutation.to));
  }
}

}  // namespace
}  // namespace kvjit::test
