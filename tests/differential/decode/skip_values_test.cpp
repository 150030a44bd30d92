// Sparse V on the CPU back-end. V of a skipped token must not enter the sums, V of a token that counts must, and the
// error must stay below the weight of the skipped tokens.
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cmath>

#include "tests/differential/harness.hpp"

namespace kvjit::test {
namespace {

constexpr unsigned kCompileThreads = 2;
constexpr int kDim = 128, kGroup = 4;

Planned planned_for(const std::shared_ptr<Context>& context, const Case& test, double sparse_v) {
  std::string toml = test.toml();
  const std::string table = "[attention]\n";
  toml.insert(toml.find(table) + table.size(), fmt::format("sparse_v = {}\n", sparse_v));
  Problem problem =
      must(resolve(must(parse_specs(toml, test.name())).at(0), registry(), context->backend()->info().arch));
  ProgramSource source = must(make_program(problem, registry()));
  return {test, std::move(problem), std::move(source)};
}

// The rows of a cache by token, equal for every head: K is the query times a score, V is random.
struct Tokens {
  std::vector<float> q, k, v;
  int count;
  explicit Tokens(int tokens, int queries = 1) : count(tokens) {
    Rng rng(11);
    const auto one = rng.normals(kDim);
    for (int row = 0; row < kKvHeads * kGroup * queries; ++row) q.insert(q.end(), one.begin(), one.end());
    k.assign(std::size_t(kKvHeads * tokens * kDim), 0.f);
    v = rng.normals(k.size());
  }
  float* at(std::vector<float>& x, int head, int token) { return &x[std::size_t((head * count + token) * kDim)]; }
  // Sets a token's score in powers of two, before quantization.
  void set_score(int token, float log2) {
    float square = 0;
    for (int i = 0; i < kDim; ++i) square += q[std::size_t(i)] * q[std::size_t(i)];
    const float factor = log2 * 0.69315f * std::sqrt(float(kDim)) / square;
    for (int head = 0; head < kKvHeads; ++head)
      for (int i = 0; i < kDim; ++i) at(k, head, token)[i] = q[std::size_t(i)] * factor;
  }
};

struct Setup {
  Planned one;
  KernelHarness harness;
  std::vector<double> k, v;  // decoded from the stored rows
  Setup(const std::shared_ptr<Context>& context, const Planned& p, Tokens& tokens)
      : one(p),
        harness(must(KernelHarness::make(context, must(Program::create(context, p.source)), p.problem,
                                         {1, kKvHeads, tokens.count}))) {
    const auto rows = encode_rows(p.problem.k, tokens.k, kDim);
    must(harness.set_rows(0, rows));
    k = decode_rows(p.problem.k, rows, kDim);
    set_values(tokens.v);
  }
  void set_values(const std::vector<float>& x) {
    const auto rows = encode_rows(one.problem.v, x, kDim);
    must(harness.set_rows(1, rows));
    v = decode_rows(one.problem.v, rows, kDim);
  }
  std::vector<float> run(const Tokens& tokens, int blocks) const {
    return must(harness.attend(tokens.q, {tokens.count, {}, blocks, false})).out;
  }
  std::vector<double> exact(const Tokens& tokens, const std::vector<double>& values) const {
    const Case& t = one.test;
    return oracle_attention({kKvHeads * kGroup, kKvHeads, t.query_length, tokens.count, kDim, t.is_causal, 0},
                            widened(rounded_to(Element::f16, tokens.q)), k, values);
  }
};

const Case kCases[] = {{"f16", "f16", kDim, kGroup, 1, Layout::planar},
                       {"kv4", "tbq4_0", kDim, kGroup, 1, Layout::planar},
                       {"q8_0", "q4_0", kDim, kGroup, 1, Layout::rows},
                       {"tbq4_0", "kv4", kDim, kGroup, 2, Layout::planar, true}};

// One token in every warp's first tile has the largest score; all later tokens are skipped.
TEST_CASE("V of skipped tokens does not count, however large; their weight stays in the denominator") {
  const auto context = open_context(DeviceKind::cpu);
  std::vector<Planned> all;
  for (const Case& test : kCases)
    for (const double sparse_v : {1e-3, 0.0}) all.push_back(planned_for(context, test, sparse_v));
  warm_up(context, all, kCompileThreads);
  for (std::size_t i = 0; i < all.size(); i += 2) {
    const Planned& sparse = all[i];
    INFO(sparse.test.name());
    const int tile = sparse.source.tile_tokens, warps = sparse.source.kernels.at(Role::decode).threads / 32;
    const int first = tile * warps;  // tokens of a block's first round; its warps' second tiles begin here
    Tokens tokens(first + 2 * tile, sparse.test.query_length);
    for (int t = 0; t < tokens.count; ++t) tokens.set_score(t, t < first && t % tile == 0 ? 12.f : 0.f);
    Setup setup(context, sparse, tokens), plain(context, all[i + 1], tokens);
    std::vector<double> left_out = setup.v;  // V as far as the kernel may see it
    std::vector<float> huge = tokens.v;
    for (int head = 0; head < kKvHeads; ++head)
      for (int t = first; t < tokens.count; ++t)
        for (int c = 0; c < kDim; ++c) {
          left_out[std::size_t((head * tokens.count + t) * kDim + c)] = 0;
          huge[std::size_t((head * tokens.count + t) * kDim + c)] *= 2000.f;
        }
    setup.set_values(huge);
    plain.set_values(huge);
    const auto expected = setup.exact(tokens, left_out);
    CHECK(relative_error(setup.run(tokens, 1), expected) <= kMaxKernelError);
    CHECK(relative_error(plain.run(tokens, 1), expected) > 0.5);  // without sparse V the large values count
    CHECK(relative_error(plain.run(tokens, 1), setup.exact(tokens, setup.v)) <= kMaxKernelError);
  }
}

TEST_CASE("a token that counts for any query row is not skipped, wherever it stands") {
  const auto context = open_context(DeviceKind::cpu);
  const Planned one = planned_for(context, kCases[1], 1e-3);
  const int tile = one.source.tile_tokens, warps = one.source.kernels.at(Role::decode).threads / 32;
  const int first = tile * warps;
  for (const int late : {first, first + 1, first + tile - 1, first + tile + 9, first + 2 * tile - 1}) {
    CAPTURE(late);
    Tokens tokens(first + 2 * tile);
    for (int t = 0; t < tokens.count; ++t) tokens.set_score(t, t % tile == 0 && t < first ? 14.f : 0.f);
    tokens.set_score(late, 9.f);  // its weight is 2^-5 of the largest
    for (int c = 0; c < kDim; ++c)
      for (int head = 0; head < kKvHeads; ++head) tokens.at(tokens.v, head, late)[c] *= 100.f;
    Setup setup(context, one, tokens);
    CHECK(relative_error(setup.run(tokens, 1), setup.exact(tokens, setup.v)) <= kMaxKernelError);
    // The token counts for one query row alone: all queries of the group except the last row's are negated.
    for (int head = 0; head < kKvHeads; ++head)
      for (int row = 0; row < kGroup - 1; ++row)
        for (int c = 0; c < kDim; ++c) tokens.q[std::size_t((head * kGroup + row) * kDim + c)] *= -1.f;
    CHECK(relative_error(setup.run(tokens, 1), setup.exact(tokens, setup.v)) <= kMaxKernelError);
  }
}

TEST_CASE("small scores are skipped only beside a large one") {
  const auto context = open_context(DeviceKind::cpu);
  const Planned one = planned_for(context, kCases[0], 0.5);
  Tokens tokens(3 * one.source.tile_tokens);
  for (int t = 0; t < tokens.count; ++t) tokens.set_score(t, -40.f);
  Setup setup(context, one, tokens);
  for (const int blocks : {1, 2})
    CHECK(relative_error(setup.run(tokens, blocks), setup.exact(tokens, setup.v)) <= kMaxKernelError);
}

// Returns the error bound of one query row: the weights of all tokens below the threshold, times the lengths of their
// V.
double bound_of(const Setup& setup, const Tokens& tokens, std::size_t row, double sparse_v) {
  const auto dim = std::size_t(kDim);
  const std::size_t first = row / kGroup * std::size_t(tokens.count);
  std::vector<double> p;
  for (int t = 0; t < tokens.count; ++t) {
    double dot = 0;
    for (std::size_t c = 0; c < dim; ++c)
      dot += double(tokens.q[row * dim + c]) * setup.k[(first + std::size_t(t)) * dim + c];
    p.push_back(dot / std::sqrt(double(kDim)));
  }
  const double largest = *std::max_element(p.begin(), p.end());
  double sum = 0, bound = 0;
  for (double& x : p) sum += x = std::exp(x - largest);
  for (std::size_t t = 0; t < p.size(); ++t) {
    double square = 0;
    for (std::size_t c = 0; c < dim; ++c) square += setup.v[(first + t) * dim + c] * setup.v[(first + t) * dim + c];
    if (p[t] < sparse_v) bound += p[t] / sum * std::sqrt(square);
  }
  return bound;
}

TEST_CASE("the error stays below the weight of skipped tokens; without such tokens the bits stay equal") {
  const auto context = open_context(DeviceKind::cpu);
  constexpr double kShares[] = {0.0, 1e-20, 1e-3, 0.03, 0.5};
  std::vector<Planned> all;
  for (const double sparse_v : kShares) all.push_back(planned_for(context, kCases[1], sparse_v));
  warm_up(context, all, kCompileThreads);
  Tokens tokens(2000);
  Rng rng(5);
  const auto scores = rng.normals(std::size_t(tokens.count));
  for (int t = 0; t < tokens.count; ++t) tokens.set_score(t, scores[std::size_t(t)] * 4);
  // Consecutive small scores, so that whole groups of tokens count for little.
  for (int t = 0; t < tokens.count; ++t)
    if (t / 100 % 2) tokens.set_score(t, scores[std::size_t(t)] - 8);
  std::vector<float> plain;
  double last_error = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    CAPTURE(kShares[i]);
    Setup setup(context, all[i], tokens);
    const auto exact = setup.exact(tokens, setup.v);
    for (const int blocks : {1, 3}) {
      const auto out = setup.run(tokens, blocks);
      if (i == 0 && blocks == 1) plain = out;
      if (i == 1 && blocks == 1) CHECK(out == plain);
      for (std::size_t row = 0; row < out.size() / kDim; ++row) {
        double error = 0, norm = 0;
        for (std::size_t c = row * kDim; c < (row + 1) * kDim; ++c)
          error += (out[c] - exact[c]) * (out[c] - exact[c]), norm += exact[c] * exact[c];
        CHECK(std::sqrt(error) <= kMaxKernelError * std::sqrt(norm) + bound_of(setup, tokens, row, kShares[i]));
      }
      last_error = relative_error(out, exact);
    }
  }
  CHECK(last_error > 5 * kMaxKernelError);  // at one half, tokens were skipped
}

}  // namespace
}  // namespace kvjit::test
