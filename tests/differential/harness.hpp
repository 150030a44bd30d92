// Shared by the differential, device and promise tests: cases, their programs, caches that the reference codec encoded,
// and the comparison with the oracle.
// SPDX-License-Identifier: MIT
#pragma once
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <atomic>
#include <map>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "generator/formats/reference_codec.hpp"
#include "generator/program.hpp"
#include "tests/support/goldens.hpp"
#include "tests/support/open_context.hpp"
#include "tests/support/oracle.hpp"
#include "tests/support/registry.hpp"
#include "tests/support/rng.hpp"
#include "tools/verify/harness.hpp"
#include "tools/verify/measure.hpp"

namespace kvjit::test {

constexpr double kMaxKernelError = 1e-3;  // relative L2; limit for every kernel on every device
constexpr int kKvHeads = 2;
constexpr const char* kFormats[] = {"f16", "bf16", "q8_0", "q4_0", "tbq4_0"};

struct Case {
  std::string k, v;
  int head_dim = 128, gqa = 4, query_length = 1;
  Layout layout = Layout::planar;
  bool is_causal = false;
  int head_dim_v = 0;   // 0: equal to head_dim
  int page_tokens = 0;  // tokens of a page of layout paged; page_layout: rows or planes in a page
  Layout page_layout = Layout::planar;
  int token_heads = 0;  // layout rows: token-major KV heads; 0: off
  bool has_checks = false;
  bool is_varlen = false;  // query_length = "any", and the member is the most
  Element q_type = Element::f16;
  bool is_in_keys = false;           // V is in K's rows
  bool has_swizzled_values = false;  // pages of planes: V's scales are swizzled

  std::string toml() const {
    return fmt::format(
               "[k]\nformat = \"{}\"\n[v]\nformat = \"{}\"\n{}[attention]\nhead_dim_k = {}\nhead_dim_v = "
               "{}\nq_type = \"{}\"\nq_heads_per_kv = {}\n{}query_length = {}\nfeatures = [{}]\n[cache]\nlayout = "
               "\"{}\"\n",
               k, v,
               is_in_keys            ? "in_keys = true\n"
               : has_swizzled_values ? "swizzle = \"4x4\"\n"
                                     : "",
               head_dim, head_dim_v ? head_dim_v : head_dim, to_string(q_type), gqa,
               is_varlen ? "query_length = \"any\"\nmax_" : "", query_length, is_causal ? "\"causal\"" : "",
               to_string(layout)) +
           (page_tokens > 0
                ? fmt::format("page_tokens = {}\npage_layout = \"{}\"\n", page_tokens, to_string(page_layout))
                : "") +
           (token_heads > 0 ? fmt::format("token_heads = {}\n", token_heads) : "") +
           (has_checks ? "[target]\nchecks = true\n" : "");
  }
  bool is_planar() const { return (page_tokens > 0 ? page_layout : layout) == Layout::planar; }
  std::string name() const {
    return fmt::format("K {} V {} Q {} head_dim {}{} GQA {} queries {}{} {}{}{}", k, v, to_string(q_type), head_dim,
                       head_dim_v ? fmt::format("x{}", head_dim_v) : "", gqa, is_varlen ? "1 to " : "", query_length,
                       layout_name(is_planar(), page_tokens), is_causal ? " causal" : "",
                       is_in_keys            ? " V in K"
                       : has_swizzled_values ? " swizzled V"
                       : token_heads         ? fmt::format(" {} heads together", token_heads)
                                             : "");
  }
};

// Returns 25 combinations of K and V formats at each head_dim that both divide into whole blocks, with every GQA group.
inline std::vector<Case> pairs(const Registry& registry, const std::vector<int>& head_dims,
                               const std::vector<int>& groups, Layout layout) {
  std::vector<Case> cases;
  for (const char* k : kFormats)
    for (const char* v : kFormats)
      for (const int head_dim : head_dims)
        for (const int gqa : groups)
          if (head_dim % must(registry.format(k, {}))->block == 0 &&
              head_dim % must(registry.format(v, {}))->block == 0)
            cases.push_back({k, v, head_dim, gqa, 1, layout, false});
  return cases;
}

struct Planned {
  Case test;
  Problem problem;
  ProgramSource source;
};
inline Planned planned(const Registry& registry, const Case& test, const std::string& arch) {
  const std::vector<Spec> specs = must(parse_specs(test.toml(), test.name()));
  REQUIRE(specs.size() == 1);
  Problem problem = must(resolve(specs[0], registry, arch));
  ProgramSource source = must(make_program(problem, registry));
  return {test, std::move(problem), std::move(source)};
}

// Compiles kernels on `threads` threads, so that the test finds them compiled. Errors are ignored here: they appear
// again when the kernel is used.
inline void warm_up(const std::shared_ptr<Context>& context, const std::vector<Planned>& all, unsigned threads,
                    bool is_complete = false) {
  std::vector<const Source*> sources;
  for (const Planned& one : all)
    for_each_kernel(one.source, [&](Role role, const Source& source) {
      if (is_complete || role == Role::decode || role == Role::prefill || role == Role::merge ||
          role == Role::rotate_q || role == Role::rotate_out)
        sources.push_back(&source);
    });
  std::atomic<std::size_t> next = 0;
  const auto work = [&] {
    for (std::size_t i; (i = next++) < sources.size();) (void)context->get(*sources[i]);
  };
  std::vector<std::thread> workers;
  for (unsigned i = 1; i < threads; ++i) workers.emplace_back(work);
  work();
  for (std::thread& worker : workers) worker.join();
}

// One side of a cache, encoded and decoded by the reference codec. encoded() caches one for each format and shape,
// because encoding takes most of a test's time.
struct Encoded {
  std::vector<float> x;
  std::vector<std::uint8_t> rows;
  std::vector<double> decoded;
};
inline const Encoded& encoded(const Format& format, int head_dim, const CacheShape& shape, int side) {
  using Key = std::tuple<std::string, int, int, int, long long, int>;
  static std::map<Key, Encoded> encodings;
  const Key key{format.name, head_dim, shape.sequences, shape.kv_heads, shape.tokens, side};
  if (const auto found = encodings.find(key); found != encodings.end()) return found->second;
  Encoded encoded;
  Rng rng(std::uint64_t(side) + 1);
  const int rows = shape.sequences * shape.kv_heads * int(shape.tokens);
  encoded.x = heavy_tailed_rows(rng, rows, head_dim);
  const RowScales scales{1, varied_head_scales(format, shape.kv_heads), shape.tokens};
  encoded.rows = encode_rows(format, encoded.x, head_dim, scales);
  encoded.decoded = decode_rows(format, encoded.rows, head_dim, scales);
  return encodings.emplace(key, std::move(encoded)).first->second;
}

template <class A, class B>
double relative_error(const A& a, const B& b) {
  REQUIRE(a.size() == b.size());
  double error = 0, norm = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    error += (double(a[i]) - double(b[i])) * (double(a[i]) - double(b[i]));
    norm += double(b[i]) * double(b[i]);
  }
  return norm == 0 ? std::sqrt(error) : std::sqrt(error / norm);
}

// A program with a filled cache; it compares calls with the oracle.
class Judge {
 public:
  Judge(const std::shared_ptr<Context>& context, const Planned& one, int sequences = 1, int capacity = 257,
        PagePlaces places = PagePlaces::own)
      : problem_(one.problem),
        name_(one.test.name()),
        tile_(one.source.tile_tokens),
        shape_{sequences, one.problem.token_heads > 0 ? one.problem.token_heads : kKvHeads,
               std::max(capacity, tile_ + 1), 1, places},
        harness_(must(KernelHarness::make(context, must(Program::create(context, one.source)), problem_, shape_))) {
    must(harness_.vary_head_scales());
    if (problem_.values_in_keys) take_values_from_keys();
    for (const int side : {0, 1})
      if (side == 0 || !problem_.values_in_keys) must(harness_.set_rows(side, cache(side).rows));
    Rng rng(3);
    q_ = rounded_to(problem_.q_type,
                    rng.normals(std::size_t(sequences) * head_rows(most_queries()) * std::size_t(problem_.head_dim)));
  }

  // Lengths around the border of a tile: 1, tile - 1, tile, tile + 1 and 257.
  std::vector<int> ragged_lengths() const { return {1, tile_ - 1, tile_, tile_ + 1, 257}; }

  // counts: queries of each sequence; empty: the program's query_length.
  std::vector<double> exact(const std::vector<int>& lengths, const std::vector<int>& counts = {}) const {
    std::vector<double> all;
    const auto dim = std::size_t(problem_.head_dim);
    auto q_end = q_.begin();
    for (int s = 0; s < shape_.sequences; ++s) {
      const int queries = counts.empty() ? problem_.query_length : counts[std::size_t(s)];
      std::vector<double> attended[2];
      for (const int side : {0, 1})
        for (int head = 0; head < kv_heads(); ++head) {
          const auto width = std::size_t(problem_.dim(side));
          const auto first = cache(side).decoded.begin() +
                             std::ptrdiff_t((std::size_t(s * kv_heads() + head) * std::size_t(shape_.tokens)) * width);
          attended[side].insert(attended[side].end(), first, first + lengths[std::size_t(s)] * problem_.dim(side));
        }
      const auto q_begin = std::exchange(q_end, q_end + std::ptrdiff_t(head_rows(queries) * dim));
      if (queries == 0) continue;
      const std::vector<double> q(q_begin, q_end);
      const auto one =
          oracle_attention({kv_heads() * problem_.q_heads_per_kv, kv_heads(), queries, lengths[std::size_t(s)],
                            problem_.head_dim, problem_.causal, 0, problem_.v_dim()},
                           q, attended[0], attended[1]);
      all.insert(all.end(), one.begin(), one.end());
    }
    return all;
  }

  // Runs a call, compares it with the oracle, checks the launch report, and returns the output.
  std::vector<float> check(const KernelHarness::Call& call) {
    const KernelHarness::Outcome outcome = must(attend(call));
    const double error = error_of(outcome, call);
    CHECK_MESSAGE(error <= kMaxKernelError, name_, ": error ", error, " over ", call.tokens, " tokens, blocks ",
                  call.blocks, std::string(call.is_reference ? ", reference" : ""));
    const LaunchReport& report = outcome.report;
    CHECK_MESSAGE(report.k_reader == problem_.k.name, name_);
    CHECK_MESSAGE(report.v_reader == problem_.v.name, name_);
    CHECK_MESSAGE((report.converted_bytes > 0) == (call.many_rows == ManyRows::two_pass), name_);
    if (call.many_rows == ManyRows::prefill || call.many_rows == ManyRows::two_pass)
      CHECK_MESSAGE(std::any_of(report.kernels.begin(), report.kernels.end(),
                                [](const std::string& kernel) { return kernel.rfind("prefill.", 0) == 0; }),
                    name_);
    if (call.blocks > 0) CHECK_MESSAGE(report.blocks <= call.blocks, name_);
    return outcome.out;
  }

  // Replaces keys, values and queries. V and Q are multiplied by the factors, keys by rest_factor: small keys give
  // small scores. `sinks` tokens from `sink` on get a score of sink_log2 (in powers of two), far from the rest.
  void reshape(float v_factor, float q_factor, float sink_log2, int sink = 0, int sinks = 1,
               float rest_factor = 1 / 64.f) {
    const auto dim = std::size_t(problem_.head_dim);
    REQUIRE(problem_.v_dim() == problem_.head_dim);
    for (const int side : {0, 1}) {
      std::vector<float> all = cache(side).x;
      for (std::size_t row = 0; row < all.size() / dim; ++row) {
        const auto x = std::span(all).subspan(row * dim, dim);
        if (side == 1)
          for (float& v : x) v *= v_factor;
        const int token = int(row % std::size_t(shape_.tokens));
        if (side == 0)  // sinks have the direction of the first query
          for (std::size_t i = 0; i < dim; ++i)
            x[i] = token >= sink && token < sink + sinks ? q_[i] * sink_log2 * 0.6931f / std::sqrt(float(dim))
                                                         : x[i] * rest_factor;
      }
      set_cache(side, std::move(all));
    }
    for (std::size_t i = 0; i < q_.size(); ++i) q_[i] = q_[i % dim] * q_factor;
    q_ = rounded_to(problem_.q_type, q_);
  }

  // Multiplies the queries of one KV head.
  void scale_queries(int kv_head, float factor) {
    const std::size_t one = q_.size() / std::size_t(shape_.sequences * kv_heads());
    for (int s = 0; s < shape_.sequences; ++s)
      for (std::size_t i = 0; i < one; ++i) q_[std::size_t(s * kv_heads() + kv_head) * one + i] *= factor;
    q_ = rounded_to(problem_.q_type, q_);
  }

  // Replaces the rows of one side, [sequences][kv_heads][tokens][head_dim], by those that x gives.
  void set_cache(int side, std::vector<float> x) {
    if (!is_own_)
      for (const int each : {0, 1}) own_[each] = cache(each);
    is_own_ = true;
    Encoded& own = own_[side];
    REQUIRE(x.size() == own.x.size());
    const Format& format = side == 0 ? problem_.k : problem_.v;
    const RowScales scales = harness_.row_scales(side);
    own.x = std::move(x);
    own.rows = encode_rows(format, own.x, problem_.dim(side), scales);
    own.decoded = decode_rows(format, own.rows, problem_.dim(side), scales);
    must(harness_.set_rows(side, own.rows));
  }
  // Replaces the queries: [sequences][q_heads][queries][head_dim].
  void set_queries(std::vector<float> q) {
    REQUIRE(q.size() == q_.size());
    q_ = rounded_to(problem_.q_type, q);
  }
  const std::vector<float>& queries() const { return q_; }

  // Runs a call and checks nothing.
  Result<KernelHarness::Outcome> attend(const KernelHarness::Call& call) const {
    return harness_.attend(queries_of(call), call);
  }
  // Queues calls that alternate between the queries and their negatives; returns how many outputs differ in bits from
  // the first output of the same queries.
  int differing(int tokens, int calls) const { return differing({tokens, {}, 0, false}, calls); }
  int differing(const KernelHarness::Call& call, int calls) const {
    const std::span<const float> q = queries_of(call);
    std::vector<float> other(q.begin(), q.end());
    for (float& x : other) x = -x;
    return must(harness_.differing(q, other, call, calls));
  }
  // Returns whether a call fails or differs from the oracle. NaN counts as different.
  bool is_wrong(const KernelHarness::Call& call) const {
    const auto outcome = attend(call);
    return !outcome || !(error_of(*outcome, call) <= kMaxKernelError);
  }

  KernelHarness& harness() { return harness_; }
  const Encoded& cache(int side) const {
    if (is_own_) return own_[side];
    return encoded(side == 0 ? problem_.k : problem_.v, problem_.dim(side), shape_, side);
  }
  const Problem& problem() const { return problem_; }

 private:
  // The values of a row of V are the first ones of K's row.
  void take_values_from_keys() {
    own_[0] = cache(0);
    const auto k_dim = std::size_t(problem_.head_dim), v_dim = std::size_t(problem_.v_dim());
    for (std::size_t at = 0; at < own_[0].decoded.size(); at += k_dim) {
      const auto row = own_[0].decoded.begin() + std::ptrdiff_t(at);
      own_[1].decoded.insert(own_[1].decoded.end(), row, row + std::ptrdiff_t(v_dim));
    }
    is_own_ = true;
  }
  double error_of(const KernelHarness::Outcome& outcome, const KernelHarness::Call& call) const {
    const std::vector<int> same(std::size_t(shape_.sequences), call.tokens);
    return relative_error(outcome.out, exact(call.lengths.empty() ? same : call.lengths, counts_of(call)));
  }
  std::span<const float> queries_of(const KernelHarness::Call& call) const {
    std::size_t rows = 0;
    for (const int count : counts_of(call)) rows += head_rows(count);
    return std::span(q_).first(rows * std::size_t(problem_.head_dim));
  }
  // Queries of each sequence of a call.
  std::vector<int> counts_of(const KernelHarness::Call& call) const {
    if (!call.query_counts.empty()) return call.query_counts;
    return std::vector<int>(std::size_t(shape_.sequences), call.queries > 0 ? call.queries : problem_.query_length);
  }
  // With run-time query lengths: as many as tests ask for.
  int most_queries() const { return problem_.varlen ? std::min(problem_.query_length, 300) : problem_.query_length; }
  int kv_heads() const { return shape_.kv_heads; }
  std::size_t head_rows(int queries) const { return std::size_t(kv_heads() * problem_.q_heads_per_kv * queries); }

  Problem problem_;
  std::string name_;
  int tile_;
  CacheShape shape_;
  KernelHarness harness_;
  std::vector<float> q_;
  Encoded own_[2];
  bool is_own_ = false;
};

// Range test: V times 1e-3, 1 and 200 (outliers beyond 1e4), with and without a token whose score is 2^17 above the
// rest. fp16 holds neither the largest nor the smallest product of probability and scale unless both are relative to a
// maximum.
inline void check_ranges(const std::shared_ptr<Context>& context, const Registry& registry) {
  constexpr int kTokens = 4096;
  for (const char* format : kFormats)
    for (const float v_factor : {1e-3f, 1.f, 200.f})
      for (const float sink_log2 : {0.f, 17.f}) {
        Judge judge(
            context,
            planned(registry, {"f16", format, 128, 4, 1, Layout::planar, false}, context->backend()->info().arch), 1,
            kTokens);
        judge.reshape(v_factor, 1.f, sink_log2);
        INFO("V times ", v_factor, ", sink ", sink_log2);
        judge.check({kTokens, {}, 2, false});
      }
}

// How many of so many bytes may differ from those of the reference codec, which sums in double. A vector is equally far
// from both places of a root of two entries, so an axis there hangs on the last bit.
inline long long allowed_differences(const Format& format, bool is_exact, std::size_t bytes) {
  return is_exact ? 0 : (long long)(bytes) / (format.codes().is_vector() ? 250 : 1000);
}

// Runs quantize and dequantize: bytes must equal those of the reference codec, values those of its decoder.
// tests/differential/codec/codec_test.cpp tests each axis of a format by itself.
inline void check_codec_kernels(Judge& judge, const std::string& name) {
  for (const int side : {0, 1}) {
    const Format& format = side == 0 ? judge.problem().k : judge.problem().v;
    const int head_dim = judge.problem().dim(side);
    const Encoded& expected = judge.cache(side);
    const RowScales scales = judge.harness().row_scales(side);
    for (const Element type : {Element::f32, Element::f16}) {
      must(judge.harness().quantize(side, rounded_to(type, expected.x), type));
      const auto rows = must(judge.harness().rows(side));
      const auto want =
          type == Element::f32 ? expected.rows : encode_rows(format, rounded_to(type, expected.x), head_dim, scales);
      REQUIRE(rows.size() == want.size());
      const ByteAgreement bytes = compare_rows(format, rows, want);
      const long long differs = bytes.code_differs + bytes.scale_differs;
      const long long allowed = allowed_differences(format, is_byte_exact(format), rows.size());
      CHECK_MESSAGE(differs <= allowed, name, ", ", to_string(type), ": ", differs, " of ", rows.size(),
                    " bytes differ");
      const auto back = must(judge.harness().dequantize(side));
      CHECK_MESSAGE(relative_error(back, decode_rows(format, rows, head_dim, scales)) <= 1e-5, name);
    }
  }
}

// Runs every golden of tests/support/goldens.hpp through the quantize kernels in both layouts: one row in f32 and in
// f16 (f16 holds the golden input exactly), and enough rows for the bulk kernel.
inline void check_goldens(const std::shared_ptr<Context>& context, const Registry& registry) {
  constexpr int kValues = 128, kManyRows = 2048;
  for (const Golden& golden : kGoldens)
    for (const Layout layout : {Layout::planar, Layout::rows}) {
      Problem problem;
      problem.k = problem.v = must(registry.format_for(golden.format, kValues, {}));
      problem.head_dim = problem.head_dim_v = kValues;
      problem.q_heads_per_kv = problem.query_length = 1;
      problem.layout = layout;
      problem.arch = *must(registry.require_arch(context->backend()->info().arch, {}));
      problem.id = golden.format;
      const auto program = must(Program::create(context, must(make_reference_program(problem, registry))));
      const auto expected = bytes_of_hex(golden.hex);
      const auto check = [&](int tokens, Element type) {
        KernelHarness harness = must(KernelHarness::make(context, program, problem, {1, 1, tokens}));
        std::vector<float> x;
        for (int t = 0; t < tokens; ++t)
          for (const float v : golden_input(kValues)) x.push_back(v);
        for (const int side : {0, 1}) {
          must(harness.quantize(side, x, type));
          auto rows = must(harness.rows(side));
          REQUIRE(rows.size() >= expected.size());
          const std::vector<std::uint8_t> last(rows.end() - std::ptrdiff_t(rows.size()) / tokens, rows.end());
          CHECK_MESSAGE(std::equal(last.begin(), last.end(), rows.begin()), golden.format, ": the last row differs");
          rows.resize(expected.size());
          CHECK_MESSAGE(hex_of(rows) == golden.hex, golden.format, ", side ", side, ", ", to_string(layout), ", ",
                        to_string(type), ", rows ", tokens);
        }
      };
      check(1, Element::f32);
      check(1, Element::f16);
      check(kManyRows, Element::f16);
    }
}

}  // namespace kvjit::test
