// Prefill over caches whose numbers leave the range of fp16, or are far below it: rows of K and V are multiplied by
// powers of ten that differ by token. Each query row is judged by itself, because rows that see large values would
// cover what rows lose that see small ones alone. Steps of the exponents are broken one by one and must be noticed.
// SPDX-License-Identifier: MIT
#include <cmath>

#include "tests/differential/decode/features.hpp"

namespace kvjit::test {
namespace {

constexpr unsigned kCompileThreads = 2;
constexpr int kSequences = 2, kCapacity = 400;
const std::vector<int> kLengths = {400, 130};
// Of the norm of a row of output. Rows of few tokens that cancel lose more than the average row.
constexpr double kMostRowError = 4e-3;

// What a row is multiplied by, from its number among the last tokens of a sequence: the last token has 1.
using Factor = double (*)(int from_end);
struct RangeCase {
  FeatureCase test;
  Factor of_values, of_keys;
  double of_queries = 1;
  ManyRows many_rows = ManyRows::prefill;
  const char* arch = "sm_90a";
};

double one(int) { return 1; }
double huge(int) { return 3e5; }
double large(int) { return 1.2e4; }  // minima are stored as halves
double small(int) { return 1e-5; }   // halves hold it
double tiny(int) { return 1e-9; }
double faint(int) { return 6e-5; }  // its scales would be subnormal halves
double weak(int) { return 1e-3; }
double beyond(int) { return 1e15; }
double vanishing(int) { return 1e-24; }
// The last 20 tokens are far larger than all before, so queries before them see small values alone.
double rises(int from_end) { return from_end <= 20 ? 1e12 : 1; }
double falls(int from_end) { return from_end <= 200 ? 1e-8 : 1e-2; }
// Rows that need a power of two beside rows that need none.
double straddles(int from_end) { return from_end % 2 ? 5e-5 : 8e-5; }
double scales_straddle(int from_end) { return from_end % 2 ? 5e-3 : 1e-2; }
double alternates(int from_end) { return from_end % 3 ? 1 : 1e5; }

const char* const kCausal = "features = [\"causal\", \"lse\"]";
// Rows of a warp whose first tile differs: some see nothing of a tile that others see.
const char* const kWindow = "window = [7, 0]\nfeatures = [\"causal\"]";
const char* const kWideWindow = "head_dim = 512\nwindow = [7, 0]\nfeatures = [\"causal\"]";
const RangeCase kCases[] = {
    {{"f16", "bf16", kCausal, 4, 70}, huge, one},
    {{"f16", "bf16", kCausal, 4, 70}, rises, one},
    {{"f16", "bf16", kCausal, 4, 70}, falls, one},
    {{"f16", "q8_0", kCausal, 4, 70}, huge, one},
    {{"f16", "q8_0", kCausal, 4, 70}, alternates, one},
    {{"kv4", "vllm_int8_per_token_head", kCausal, 3, 30}, beyond, one},
    {{"kv4", "vllm_int4_per_token_head", kCausal, 4, 15}, rises, one},
    {{"kv4", "mxfp4", "head_dim = 256\nfeatures = [\"causal\"]", 4, 40}, tiny, one},
    {{"kv4", "q4_1", kCausal, 4, 70, Layout::rows}, large, one},
    {{"bf16", "bf16", kCausal, 4, 70, Layout::rows}, beyond, huge, 1e-4},
    {{"bf16", "f16", kCausal, 4, 70}, one, tiny, 1e4},
    {{"mxfp4", "q8_0", kCausal, 4, 70}, huge, huge, 1e-4},
    {{"bf16", "f16", "q_type = \"bf16\"\nfeatures = [\"causal\"]", 4, 70}, one, tiny, 1e9},
    {{"q8_0", "f16", "q_type = \"f32\"\nfeatures = [\"causal\"]", 4, 15, Layout::rows}, one, huge, 1e-6},
    {{"kv4", "kv4", "q_type = \"f32\"\nfeatures = [\"causal\"]", 4, 70}, one, small, 1e5},
    {{"f16", "f16", "q_type = \"f32\"\nfeatures = [\"causal\"]", 4, 40}, one, small, 1e5, ManyRows::prefill, "sm_80"},
    {{"f16", "f16", "q_type = \"bf16\"\nhead_dim = 512\nfeatures = [\"causal\"]", 8, 10}, one, small, 1e5},
    {{"q4_0", "q4_0", "q_type = \"bf16\"\nfeatures = [\"causal\"]", 4, 70}, one, small, 1e5, ManyRows::two_pass},
    {{"f16", "vllm_fp8_per_token_head", kCausal, 4, 70}, faint, one},
    {{"vllm_fp8_per_token_head", "vllm_fp8_per_token_head", kCausal, 20, 3, Layout::rows}, faint, one},
    {{"vllm_fp8_per_token_head", "vllm_fp8_per_token_head", kCausal, 20, 3, Layout::rows}, weak, one},
    {{"f16", "bf16", kCausal, 4, 70}, straddles, one},
    {{"kv4", "vllm_v4", kCausal, 4, 70}, straddles, one},
    {{"f16", "vllm_fp8_per_token_head", kCausal, 4, 70}, scales_straddle, one},
    // In two passes: by wgmma, by mma.sync, and with rows that consumers share.
    {{"bf16", "bf16", kCausal, 4, 70}, rises, one, 1, ManyRows::two_pass},
    {{"q8_0", "vllm_int8_per_token_head", kCausal, 4, 70, Layout::rows}, rises, huge, 1e-5, ManyRows::two_pass},
    {{"mxfp4", "q8_0", kCausal, 4, 20}, alternates, huge, 1e-4, ManyRows::two_pass},
    {{"q8_0", "bf16", "head_dim = 192\nfeatures = [\"causal\"]", 4, 40}, beyond, one, 1, ManyRows::two_pass},
    {{"bf16", "q8_0", kCausal, 4, 70}, alternates, huge, 1e-4, ManyRows::two_pass, "sm_80"},
    {{"f16", "vllm_int4_per_token_head", kCausal, 4, 40}, rises, one, 1, ManyRows::two_pass, "sm_86"},
    {{"bf16", "bf16", "head_dim = 512\nfeatures = [\"causal\"]", 8, 10}, rises, huge, 1e-4, ManyRows::two_pass},
    {{"q8_0", "mxfp4", "head_dim = 512\nfeatures = [\"causal\"]", 8, 10}, falls, one, 1, ManyRows::two_pass},
    {{"kv4", "q4_1", kCausal, 4, 70}, large, one, 1, ManyRows::two_pass},
    {{"f16", "bf16", kWindow, 4, 70}, vanishing, one},
    {{"f16", "mxfp4", kWideWindow, 4, 70}, vanishing, one, 1, ManyRows::two_pass},
    {{"f16", "bf16", kWindow, 4, 70}, vanishing, one, 1, ManyRows::two_pass, "sm_80"},
};

std::vector<double> rows_of(const Format& format, int side, int dim, Factor factor, std::vector<std::uint8_t>& bytes) {
  Rng rng(std::uint64_t(side) + 5);
  std::vector<float> x = rng.normals(std::size_t(kSequences * kKvHeads * kCapacity) * std::size_t(dim));
  for (std::size_t i = 0; i < x.size(); ++i) {
    const int row = int(i / std::size_t(dim)), token = row % kCapacity,
              length = kLengths[std::size_t(row / (kKvHeads * kCapacity))];
    x[i] *= float(factor(length - token));
  }
  const RowScales scales{1, varied_head_scales(format, kKvHeads), kCapacity};
  bytes = encode_rows(format, x, dim, scales);
  return decode_rows(format, bytes, dim, scales);
}

// The largest error of a query row, relative to its norm.
double worst_row(const std::shared_ptr<Context>& context, const Planned& planned_case, const RangeCase& range) {
  const Problem& problem = planned_case.problem;
  const CacheShape shape{kSequences, kKvHeads, kCapacity};
  KernelHarness harness =
      must(KernelHarness::make(context, must(Program::create(context, planned_case.source)), problem, shape));
  const int dim = problem.head_dim, heads = kKvHeads * problem.q_heads_per_kv, queries = problem.query_length;
  std::vector<double> decoded[2];
  for (const int side : {0, 1}) {
    std::vector<std::uint8_t> bytes;
    decoded[side] =
        rows_of(side == 0 ? problem.k : problem.v, side, dim, side == 0 ? range.of_keys : range.of_values, bytes);
    must(harness.set_rows(side, bytes));
  }
  Rng rng(3);
  std::vector<float> q = rng.normals(std::size_t(kSequences * heads * queries) * std::size_t(dim));
  for (float& x : q) x *= float(range.of_queries);
  q = rounded_to(problem.q_type, q);
  KernelHarness::Call call{0, kLengths, 0, false};
  call.many_rows = range.many_rows;
  const auto outcome = harness.attend(q, call);
  if (!outcome) return INFINITY;
  double worst = 0;
  for (int s = 0; s < kSequences; ++s) {
    const int length = kLengths[std::size_t(s)];
    std::vector<double> attended[2];
    for (const int side : {0, 1})
      for (int head = 0; head < kKvHeads; ++head) {
        const auto first = decoded[side].begin() + std::ptrdiff_t((s * kKvHeads + head) * kCapacity) * dim;
        attended[side].insert(attended[side].end(), first, first + std::ptrdiff_t(length) * dim);
      }
    const auto rows = std::size_t(heads * queries), first = std::size_t(s) * rows * std::size_t(dim);
    const std::vector<double> own(q.begin() + std::ptrdiff_t(first),
                                  q.begin() + std::ptrdiff_t(first + rows * std::size_t(dim)));
    OracleCase oracle{heads, kKvHeads, queries, length, dim, problem.causal, 0};
    if (problem.features.has_window())
      oracle.added = [&](int, int query, int token) {
        return token < length - queries + query - problem.features.window_left ? -INFINITY : 0.;
      };
    const auto want = oracle_attention(oracle, own, attended[0], attended[1]);
    for (std::size_t row = 0; row < rows; ++row) {
      double error = 0, norm = 0;
      for (std::size_t d = row * std::size_t(dim); d < (row + 1) * std::size_t(dim); ++d) {
        const double difference = outcome->out[first + d] - want[d];
        error += difference * difference, norm += want[d] * want[d];
      }
      const double relative = std::sqrt(error / norm);
      if (!(relative <= worst)) worst = relative;
    }
  }
  return worst;
}

TEST_CASE("numbers beyond fp16 and far below it: each query row has the oracle's answer") {
  const auto context = open_context(DeviceKind::cpu);
  std::vector<Planned> all;
  for (const RangeCase& range : kCases) all.push_back(planned(registry(), range.test, range.arch));
  warm_up(context, all, kCompileThreads);
  for (std::size_t i = 0; i < all.size(); ++i) {
    INFO("case ", i, ": ", all[i].problem.id);
    CHECK(worst_row(context, all[i], kCases[i]) <= kMostRowError);
  }
}

struct Mutation {
  std::size_t test;  // of kCases
  const char *text, *broken;
  Role role = Role::prefill;  // of the second pass, if the case takes two
};
const Mutation kMutations[] = {
    {0, "exponents.end(o);", ""},
    {0, "leaves |= !Fitted::template fits<Side, S>(reads);", ""},
    {2, "if (any(leaves || (exponents & own)))", "if (any(leaves))"},
    {1, "TokenExponents<Plan, true>::open();", ""},
    {1, "o[i] *= of_sums[i / 2 % 2];", ";"},
    {1, "s[i] *= products[i / 2 % 2];", ";"},
    {33, "if (sums[h] == 0.f) bound", "if (is_first && sums[h] == 0.f) bound"},
    {34, "if (sums[h] == 0.f) bound", "if (is_first && sums[h] == 0.f) bound"},
    {2, "wanted > 0 && wanted < old - kStay ? wanted : old", "old"},
    {4, "set_byte(exponents, b, h, exponent);", ""},
    {9, "if (scales_keys) TokenExponents<Plan, false>::scale(s, n);", ""},
    {18, "const int lift = of_scale - (kLeastNormalExponent + kMargin);", "const int lift = 0;"},
    {21, "constexpr int kMargin = 4;", "constexpr int kMargin = 20;"},
    {23, "constexpr int kMargin = 4;", "constexpr int kMargin = 20;"},
    {12, "QueryFactors<Plan>::fit(x[i], to, row + i);", ""},
    {13, "if (scales_queries[b]) QueryFactors<Plan>::multiply(s, q, row_of_group);", ""},
    {15, "for (int h = 0; h < 2; ++h) factor[h] = float_of(load_staged_u32(place(q, row + 8 * h)));",
     "for (int h = 0; h < 2; ++h) factor[h] = float_of(load_staged_u32(place(q, row)));"},
    {24, "const int exponent = exponent_of_row(most);", "const int exponent = 0;", Role::dequantize_chunk_v},
    {24, "most = larger(most, shfl_xor(most, mask));", ";", Role::dequantize_chunk_v},
    {27, "if (!has_values) most = 0.f;", "if (!has_values) return;", Role::dequantize_chunk_k},
    {25, "*call.powers.used = call.powers.chunk;", "return;", Role::dequantize_chunk_v},
    {24, "StoredExponents<Plan, true>::copy(args.v, work, tile, n, stored_from);", ""},
    {25, "StoredExponents<Plan, false>::copy(args.k, work, tile, n, stored_from);", ""},
    {24, "if (warp_uniform(has_powers == Plan::kTakesPowers)) attend", "if (false) attend"},
    {28, "TokenExponents<Plan, false>::scale(s, tile);", ";"},
    {28, "exponents.fit(s, o[0], softmax[0].sum, tile, 0, [](auto&, auto&) {});", ""},
    {28, "exponents.end(o);", ""},
    {30, "TokenExponents<Plan, false>::scale(s, n);", ";"},
    {30, "Exchange::combine(products, denominators, group, row_of_block, meetings);", ""},
    {30, "exponents.end(o);", ""},
};

TEST_CASE("numbers beyond fp16: broken exponents are noticed") {
  const auto context = open_context(DeviceKind::cpu);
  for (const Mutation& mutation : kMutations) {
    const RangeCase& range = kCases[mutation.test];
    Planned broken = planned(registry(), range.test, range.arch);
    ProgramSource& source = broken.source;
    const bool in_two = range.many_rows == ManyRows::two_pass;
    Text& kernel =
        (in_two && mutation.role == Role::prefill ? source.second_pass.back() : source).kernels.at(mutation.role).text;
    std::string text = kernel.str();
    const auto at = text.rfind(mutation.text);  // the form of a family comes after what it includes
    REQUIRE_MESSAGE(at != std::string::npos, "the kernel no longer has ", std::string(mutation.text));
    text.replace(at, std::string(mutation.text).size(), mutation.broken);
    kernel = text;
    CHECK_MESSAGE(!(worst_row(context, broken, range) <= kMostRowError), std::string(mutation.text));
  }
}

}  // namespace
}  // namespace kvjit::test
