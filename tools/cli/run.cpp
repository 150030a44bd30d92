// The verbs that launch: run (on your K, V, Q) and verify (on seeded random ones). Both judge the kernels by
// attention in double over the cache as the reference codec decodes it, never by another kernel.
// SPDX-License-Identifier: MIT
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>

#include "generator/formats/reference_codec.hpp"
#include "tools/cli/cli.hpp"
#include "tools/cli/verify_sweeps.hpp"
#include "tools/io/files.hpp"
#include "tools/io/npy.hpp"
#include "tools/io/report.hpp"
#include "tools/quality/kvq_files.hpp"
#include "tools/verify/harness.hpp"
#include "tools/verify/measure.hpp"
#include "tools/verify/verify_pages.hpp"

namespace kvjit {
namespace {

constexpr double kMaxKernelError = 1e-3;      // relative L2: what every kernel is held to
constexpr double kMaxDequantizeError = 1e-5;  // relative L2: float32 against double
// Fractions of bytes that may be rounded the other way where is_byte_exact() is false. A scale of f16 steps by 2^-11 of
// itself and float32 sums are off by about 1e-6, so some 1 in 500 changes; codes near a bound are rarer.
constexpr double kMaxCodeBytes = 1e-3, kMaxScaleBytes = 1e-2;

// Not "a > b": an error that is NaN must fail too.
bool is_within(double error, double limit) { return error <= limit; }

struct RunArgs {
  std::string spec, q, k, v, out, report;
  std::vector<std::string> specs;
  long long tokens = 0;
  SweepArgs sweep;
};

Json side_json(const SideFacts& side, const std::vector<std::uint8_t>& rows, std::size_t values,
               const ByteAgreement& bytes) {
  return {{"format", side.format},
          {"stored_bytes", rows.size()},
          {"bytes_per_value", static_cast<double>(rows.size()) / static_cast<double>(values)},
          {"bytes_unlike_reference_codec", bytes.code_differs + bytes.scale_differs}};
}

// For programs that append: the newest of `tokens` tokens of K and V, which their call stores again.
void set_newest(Trial& trial, const Problem& problem, const std::vector<float>* const (&x)[2], int tokens) {
  if (!problem.append) return;
  const std::vector<int> lengths(static_cast<std::size_t>(trial.shape().sequences), tokens);
  for (const int side : {0, 1})
    trial.set_newest(side, newest_rows(*x[side], trial.shape(), lengths, problem.query_length, problem.dim(side)));
}

// Seeded numbers for what the features of a program read.
void set_features(Trial& trial, const Problem& problem) {
  const CacheShape& shape = trial.shape();
  trial.set_features(random_features(
      problem.features,
      {shape.sequences, shape.kv_heads * problem.q_heads_per_kv, problem.query_length, static_cast<int>(shape.tokens)},
      11));
}

// Of logarithms of sums: absolute below 1, relative above.
double lse_error(const std::vector<float>& lse, const std::vector<double>& exact) {
  double worst = 0;
  for (std::size_t i = 0; i < lse.size(); ++i) {
    const double error = lse[i] == exact[i] ? 0 : std::abs(lse[i] - exact[i]) / std::max(1., std::abs(exact[i]));
    worst = std::isnan(error) ? error : std::max(worst, error);
  }
  return worst;
}

// No oracle knows what a hook says, so the readable kernel says what is exact.
Result<void> judge_by_reference(const Trial& trial, std::span<const float> q, Trial::Call call,
                                std::vector<double>& exact, std::vector<double>& exact_lse) {
  call.is_reference = true;
  KV_TRY(judge, trial.attend(q, call));
  exact = widened(judge.out), exact_lse = widened(judge.lse);
  return {};
}

Result<int> run(const Cli& cli, const RunArgs& args) {
  KV_TRY(registry, cli.registry());
  KV_TRY(spec, cli.one_spec(args.spec));
  KV_TRY(k, read_heads(args.k, "K [kv_heads, tokens, head_dim]"));
  KV_TRY(v, read_heads(args.v, "V [kv_heads, tokens, head_dim]"));
  KV_TRY(q, read_heads(args.q, "Q [q_heads, queries, head_dim]"));
  if (args.tokens < 0) return fail(Code::usage, fmt::format("--tokens {}: must be positive", args.tokens));
  const long long tokens = args.tokens ? args.tokens : k.rows;
  const int dim = spec.head_dim, v_dim = spec.dim_of("v"), gqa = spec.q_heads_per_kv, queries = spec.query_length;
  const std::string key =
      fmt::format("{}: head_dim {}, q_heads_per_kv {}, query_length {}", args.spec, dim, gqa, queries);
  const std::string v_key = fmt::format("V has the heads and tokens of K, and {}: head_dim {}", args.spec, v_dim);
  KV_CHECK(expect_shape(args.k, k, 0, std::max<long long>(tokens, queries), dim, key.c_str()));
  KV_CHECK(expect_shape(args.v, v, k.heads, tokens, v_dim, v_key.c_str()));
  KV_CHECK(expect_shape(args.q, q, k.heads * gqa, queries, dim, key.c_str()));
  if (v.rows != k.rows)
    return fail(Code::bad_input, fmt::format("{} has {} tokens, {} has {}", args.k, k.rows, args.v, v.rows));
  if (tokens < queries)
    return fail(Code::bad_input, fmt::format("--tokens {}: fewer than the {} queries of the spec", tokens, queries));
  constexpr long long kMaxTokens = 1 << 30;  // token counts are int in the kernels' arguments
  if (tokens > kMaxTokens || k.heads > 65535) return fail(Code::unsupported, "at most 2^30 tokens and 65535 heads");

  KV_TRY(context, cli.context());
  KV_TRY(ready, make_ready(spec, registry, context));
  const ProgramSource& source = ready.program->source();
  KV_TRY(trial, Trial::make(context, ready.program, ready.problem, {1, static_cast<int>(k.heads), tokens}));
  const std::vector<float> k_values = k.last(tokens), v_values = v.last(tokens), q_values = q.last(queries);
  KV_CHECK(trial.quantize(0, k_values));
  KV_CHECK(trial.quantize(1, v_values));
  set_newest(trial, ready.problem, {&k_values, &v_values}, static_cast<int>(tokens));
  set_features(trial, ready.problem);
  KV_TRY(outcome, trial.attend(q_values, {}));

  KV_TRY(k_rows, trial.rows(0));
  KV_TRY(v_rows, trial.rows(1));
  const ScoreRule rule(ready.problem.features, ready.problem.causal, trial.features(), 0, queries, tokens);
  const AttentionShape shape{static_cast<int>(k.heads), gqa,   queries, dim, tokens, 0,
                             ready.problem.causal,      v_dim, &rule};
  const auto given = widened(rounded_to(spec.q_type, q_values));
  const auto keys = decode_rows(ready.problem.k, k_rows, dim), values = decode_rows(ready.problem.v, v_rows, v_dim);
  std::vector<double> exact_lse;
  auto exact = exact_attention(shape, given, keys, values, &exact_lse);
  const bool has_hook = ready.problem.features.has_hook();
  if (has_hook) KV_CHECK(judge_by_reference(trial, q_values, {}, exact, exact_lse));
  const double limit = kMaxKernelError + sparse_bound(shape, ready.problem.sparse_v, given, keys, values, exact);
  const auto unquantized = exact_attention(shape, widened(q_values), widened(k_values), widened(v_values));
  const Difference kernel = difference(outcome.out, exact, v_dim),
                   quality = difference(outcome.out, unquantized, v_dim);
  const ByteAgreement k_bytes = compare_rows(ready.problem.k, k_rows, encode_rows(ready.problem.k, k_values, dim));
  const ByteAgreement v_bytes = compare_rows(ready.problem.v, v_rows, encode_rows(ready.problem.v, v_values, v_dim));
  const long long differing =
      k_bytes.code_differs + k_bytes.scale_differs + v_bytes.code_differs + v_bytes.scale_differs;

  const DeviceFacts& facts = context->backend()->facts();
  Json data = {{"program", source.id},
               {"title", source.title},
               {"device", facts.name},
               {"arch", source.arch},
               {"kv_heads", k.heads},
               {"q_heads", q.heads},
               {"head_dim", dim},
               {"head_dim_v", v_dim},
               {"query_length", queries},
               {"tokens", tokens},
               {"k", side_json(source.k, k_rows, k_values.size(), k_bytes)},
               {"v", side_json(source.v, v_rows, v_values.size(), v_bytes)},
               {"kernels", outcome.report.kernels},
               {"blocks", outcome.report.blocks},
               {"cache_bytes", outcome.report.cache_bytes},
               {"converted_bytes", outcome.report.converted_bytes},
               {"kernel_error", kernel.relative_l2}};
  if (!has_hook) data.update({{"quality_error", quality.relative_l2}, {"quality_cosine", quality.cosine}});
  data["features"] = outcome.report.features;
  if (!outcome.lse.empty()) data["lse_error"] = lse_error(outcome.lse, exact_lse);
  const auto side_text = [](const char* name, const Json& side) {
    return fmt::format("{} {}, {:.4f} bytes a value", name, side["format"].get<std::string>(),
                       side["bytes_per_value"].get<double>());
  };
  std::vector<std::pair<std::string, std::string>> lines = {
      {"program", source.id},
      {"device", fmt::format("{}, text for {}", facts.name, source.arch)},
      {"input", fmt::format("{} tokens, {} KV heads, {} query heads, head_dim {}, {} quer{}", tokens, k.heads, q.heads,
                            dim, queries, queries == 1 ? "y" : "ies")},
      {"keys", side_text("as", data["k"])},
      {"values", side_text("as", data["v"])},
      {"cache", fmt::format("{} read, {} converted outside the kernel",
                            byte_count(static_cast<double>(outcome.report.cache_bytes)),
                            byte_count(static_cast<double>(outcome.report.converted_bytes)))},
      {"codec", fmt::format("{} of {} bytes differ from the reference codec", differing,
                            k_bytes.code_bytes + k_bytes.scale_bytes + v_bytes.code_bytes + v_bytes.scale_bytes)},
      {"kernel error", fmt::format("{:.2e} against {}", kernel.relative_l2,
                                   has_hook ? "the reference kernel: nothing else knows the hook"
                                            : "exact attention over the decoded cache")},
      {"features", outcome.report.features.empty()
                       ? "none"
                       : fmt::format("{}{}", fmt::join(outcome.report.features, ", "),
                                     ready.problem.features.any() ? "; what they read is random" : "")},
      {"quality error", has_hook ? "not known, with a hook"
                                 : fmt::format("{:.2e} against attention over the unquantized K and V, cosine {:.6f}",
                                               quality.relative_l2, quality.cosine)}};
  if (facts.is_gpu) {
    constexpr int kRepeats = 100;
    KV_TRY(timed, trial.time(q_values, {}, kRepeats));
    const Backend::Timing& timing = timed.timing;
    const double gb_per_s = static_cast<double>(outcome.report.cache_bytes) / timing.median_us * 1e-3;
    data.update({{"time_us", timing.median_us},
                 {"time_low_us", timing.low_us},
                 {"time_high_us", timing.high_us},
                 {"cache_gb_per_s", gb_per_s}});
    lines.push_back({"time", fmt::format("{:.2f} us ({:.2f} to {:.2f}, {} calls), {:.1f} GB/s of cache",
                                         timing.median_us, timing.low_us, timing.high_us, timing.repeats, gb_per_s)});
  } else {
    lines.push_back({"time", "not measured: the CPU back-end checks numbers, not speed"});
  }
  if (!args.out.empty()) KV_CHECK(write_npy(args.out, {q.heads, queries, dim}, outcome.out));
  if (!args.report.empty()) KV_CHECK(write_text(args.report, data.dump(2) + "\n"));
  cli.print(data, facts_text(lines));
  const bool is_lse_right = outcome.lse.empty() || is_within(lse_error(outcome.lse, exact_lse), kMaxKernelError);
  if (kernel.relative_l2 <= limit && is_lse_right) return 0;
  if (!is_lse_right)
    fmt::print(stderr, "error: the error of lse is above {}\n", kMaxKernelError);
  else
    fmt::print(stderr, "error: the kernel error is above {}\n", limit);
  return static_cast<int>(Code::differs);
}

struct Verdict {
  double attention = 0, reference = 0, dequantize = 0, code_fraction = 0;
  long long scale_differs = 0;
  std::vector<int> lengths;  // attended over
  std::string failure;       // empty: passed
  void require(bool is_met, const std::string& what) {
    if (!is_met && failure.empty()) failure = what;
  }
};

constexpr int kMostVerified = 1 << 22;  // tokens; the oracle takes seconds at 2^17

// The newest of `tokens` tokens, as they are in no cache: what attention says of them then comes from the rows that it
// was given.
Result<void> spoil_newest(Trial& trial, const Problem& problem, int side, std::vector<std::uint8_t> rows, int tokens) {
  const auto capacity = static_cast<std::size_t>(trial.shape().tokens);
  const std::size_t row = rows.size() / (static_cast<std::size_t>(trial.shape().kv_heads) * capacity);
  const auto count = static_cast<std::size_t>(problem.query_length);
  for (int head = 0; head < trial.shape().kv_heads; ++head) {
    const std::size_t end = static_cast<std::size_t>(head) * capacity + static_cast<std::size_t>(tokens);
    std::fill_n(rows.begin() + static_cast<std::ptrdiff_t>((end - count) * row), count * row, std::uint8_t(0xFF));
  }
  return trial.set_rows(side, rows);
}

// longest: a length besides those around a tile, 0 for none.
Result<Verdict> verify_one(const Spec& spec, int longest, const Registry& registry,
                           const std::shared_ptr<Context>& context) {
  KV_TRY(ready, make_ready(spec, registry, context));
  const Problem& problem = ready.problem;
  const ProgramSource& source = ready.program->source();
  const int tile = source.tile_tokens, capacity = std::max({257, tile + 1, longest}),
            kv_heads = source.token_heads > 0 ? source.token_heads : 2;
  const Format* formats[2] = {&problem.k, &problem.v};
  KV_TRY(trial, Trial::make(context, ready.program, problem, {1, kv_heads, capacity}));
  Verdict verdict;
  std::vector<double> decoded[2];
  std::vector<float> given[2];
  std::vector<std::uint8_t> stored[2];
  for (int side : {0, 1}) {
    const int dim = problem.dim(side);
    const auto& x = given[side] = heavy_tailed(
        static_cast<std::uint64_t>(side) + 1,
        static_cast<std::size_t>(kv_heads) * static_cast<std::size_t>(capacity) * static_cast<std::size_t>(dim), dim);
    KV_CHECK(trial.quantize(side, x));
    KV_TRY(rows, trial.rows(side));
    const ByteAgreement bytes = compare_rows(*formats[side], rows, encode_rows(*formats[side], x, dim));
    const double fraction = static_cast<double>(bytes.code_differs) / static_cast<double>(bytes.code_bytes);
    verdict.code_fraction = std::max(verdict.code_fraction, fraction);
    verdict.scale_differs += bytes.scale_differs;
    const double scale_fraction =
        static_cast<double>(bytes.scale_differs) / static_cast<double>(std::max(bytes.scale_bytes, 1LL));
    verdict.require(is_byte_exact(*formats[side]) ? bytes.code_differs + bytes.scale_differs == 0
                                                  : fraction <= kMaxCodeBytes && scale_fraction <= kMaxScaleBytes,
                    fmt::format("quantize of {}: {} code and {} scale bytes differ from the reference codec",
                                formats[side]->name, bytes.code_differs, bytes.scale_differs));
    decoded[side] = decode_rows(*formats[side], rows, dim);
    stored[side] = rows;
    KV_TRY(dequantized, trial.dequantize(side));
    const double error = difference(dequantized, decoded[side], dim).relative_l2;
    verdict.dequantize = std::max(verdict.dequantize, error);
    verdict.require(is_within(error, kMaxDequantizeError),
                    fmt::format("dequantize of {}: error {:.2e}", formats[side]->name, error));
  }
  const auto q = rounded_to(
      problem.q_type,
      heavy_tailed(3, std::size_t(kv_heads) * problem.q_heads_per_kv * problem.query_length * problem.head_dim,
                   problem.head_dim));
  set_features(trial, problem);
  std::vector<std::string> features = problem.features.names();
  if (problem.causal) features.insert(features.begin(), "causal");
  for (const int tokens : {1, tile - 1, tile, tile + 1, 257, longest}) {
    if (tokens < problem.query_length || tokens == 0)
      continue;  // fewer tokens than queries is not a cache that a model can have
    verdict.lengths.push_back(tokens);
    const ScoreRule rule(problem.features, problem.causal, trial.features(), 0, problem.query_length, tokens);
    const AttentionShape shape{kv_heads,
                               problem.q_heads_per_kv,
                               problem.query_length,
                               problem.head_dim,
                               tokens,
                               capacity,
                               problem.causal,
                               problem.v_dim(),
                               &rule};
    std::vector<double> exact_lse;
    auto exact = exact_attention(shape, widened(q), decoded[0], decoded[1], &exact_lse);
    if (problem.features.has_hook()) KV_CHECK(judge_by_reference(trial, q, {tokens, {}, 0, false}, exact, exact_lse));
    const double bound = sparse_bound(shape, problem.sparse_v, widened(q), decoded[0], decoded[1], exact);
    set_newest(trial, problem, {&given[0], &given[1]}, tokens);
    if (problem.append)
      for (const int side : {0, 1}) KV_CHECK(spoil_newest(trial, problem, side, stored[side], tokens));
    for (const bool is_reference : {false, true}) {
      KV_TRY(outcome, trial.attend(q, {tokens, {}, 0, is_reference}));
      const double error = difference(outcome.out, exact, problem.v_dim()).relative_l2;
      double& worst = is_reference ? verdict.reference : verdict.attention;
      worst = std::isnan(error) ? error : std::max(worst, error);
      verdict.require(
          is_within(error, kMaxKernelError + (is_reference ? 0 : bound)),
          fmt::format("{} over {} tokens: error {:.2e}", is_reference ? "reference" : "attention", tokens, error));
      const double lse = lse_error(outcome.lse, exact_lse);
      verdict.require(
          is_within(lse, kMaxKernelError) && outcome.lse.empty() != problem.features.lse,
          fmt::format("lse of {} over {} tokens: error {:.2e}", is_reference ? "reference" : "attention", tokens, lse));
      for (const int side : {0, 1}) {
        if (!problem.append) break;
        KV_TRY(rows, trial.rows(side));
        const ByteAgreement bytes = compare_rows(*formats[side], rows, stored[side]);
        verdict.require(bytes.code_differs + bytes.scale_differs == 0,
                        fmt::format("append of {} at {} tokens: {} bytes differ from those of quantize",
                                    formats[side]->name, tokens, bytes.code_differs + bytes.scale_differs));
      }
      const LaunchReport& report = outcome.report;
      verdict.require(report.features == features,
                      fmt::format("the launch had the features {}, not {}", fmt::join(report.features, ", "),
                                  fmt::join(features, ", ")));
      verdict.require(
          report.k_reader == problem.k.name && report.v_reader == problem.v.name && report.converted_bytes == 0,
          fmt::format("read K as {} and V as {}, converted {} bytes", report.k_reader, report.v_reader,
                      report.converted_bytes));
    }
  }
  if (problem.page_tokens > 0) {
    KV_TRY(pages, verify_pages(context, ready.program, problem, kMaxKernelError));
    verdict.attention = std::isnan(pages.worst) ? pages.worst : std::max(verdict.attention, pages.worst);
    verdict.require(pages.failure.empty(), pages.failure);
  }
  return verdict;
}

// What a verify of several files has said so far. Refusals and failures come last, where they are not scrolled away.
struct Verification {
  Json results = Json::array();
  std::vector<std::vector<std::string>> rows;
  std::string complaints;
  int exit_code = 0;  // of the first complaint

  void refuse(const std::string& file, const std::string& name, const std::string& label, const Error& error) {
    rows.push_back({"refused", name, "-", "-", "-", "-"});
    results.push_back({{"spec", file}, {"combination", label}, {"is_ok", false}, {"error", to_json(error)}});
    complain(render(error), error.code);
  }
  void add(const Spec& spec, const std::string& name, const Verdict& verdict) {
    const bool is_ok = verdict.failure.empty();
    rows.push_back({is_ok ? "ok" : "differs", name, fmt::format("{:.1e}", verdict.attention),
                    fmt::format("{:.1e}", verdict.reference), fmt::format("{:.1e}", verdict.dequantize),
                    short_number(verdict.code_fraction)});
    Json result = {{"spec", spec.file},
                   {"combination", spec.label},
                   {"is_ok", is_ok},
                   {"tokens", verdict.lengths},
                   {"attention_error", verdict.attention},
                   {"reference_error", verdict.reference},
                   {"dequantize_error", verdict.dequantize},
                   {"code_bytes_unlike_reference_codec", verdict.code_fraction},
                   {"scale_bytes_unlike_reference_codec", verdict.scale_differs}};
    if (!is_ok) {
      result["failure"] = verdict.failure;
      complain(fmt::format("{}: error: {}\n", name, verdict.failure), Code::differs);
    }
    results.push_back(result);
  }

 private:
  void complain(const std::string& text, Code code) {
    complaints += text;
    if (exit_code == 0) exit_code = static_cast<int>(code);
  }
};

Result<int> verify(const Cli& cli, const RunArgs& args) {
  const SweepArgs& sweep = args.sweep;
  const int asked = !args.specs.empty() + !sweep.matrix.empty() + (sweep.fuzz > 0);
  if (asked != 1)
    return fail(Code::usage, "verify takes specs, or --matrix, or --fuzz", {},
                {"`kvjit verify SPEC...`", "`kvjit verify --matrix ggml [--sample N]`", "`kvjit verify --fuzz N`"});
  if (!sweep.matrix.empty()) return verify_matrix(cli, sweep);
  if (sweep.fuzz > 0) return verify_fuzz(cli, sweep);
  KV_TRY(registry, cli.registry());
  KV_TRY(context, cli.context());
  Verification all;
  for (const std::string& file : args.specs) {
    const auto specs = cli.specs({file});
    if (!specs) {
      all.refuse(file, file, "", specs.error());
      continue;
    }
    cli.talk(fmt::format("{}: {} specs on {}", file, specs->size(), context->backend()->facts().name));
    for (const Spec& spec : *specs) {
      if (!spec.hook.empty())
        cli.talk(
            fmt::format("{}: attention is judged by the reference kernel: nothing else knows the hook", spec.file));
      const std::string name = spec.label.empty() ? spec.file : fmt::format("{} {}", spec.file, spec.label);
      const auto verdict = verify_one(spec, static_cast<int>(args.tokens), registry, context);
      if (verdict)
        all.add(spec, name, *verdict);
      else
        all.refuse(spec.file, name, spec.label, verdict.error());
    }
  }
  cli.print({{"device", context->backend()->facts().name}, {"specs", all.results}},
            table_text({"", "spec", "attention", "reference", "dequantize", "codes"}, all.rows));
  fmt::print(stderr, "{}", all.complaints);
  return all.exit_code;
}

}  // namespace

void add_run_verbs(CLI::App& app, Cli& cli) {
  const auto args = std::make_shared<RunArgs>();
  CLI::App* runs = app.add_subcommand("run", "quantize your K and V, attend, and measure the errors");
  runs->add_option("SPEC", args->spec, "spec file")->required();
  runs->add_option("--q", args->q, "queries [q_heads, queries, head_dim], .npy; the last ones are used")->required();
  runs->add_option("--k", args->k, "keys [kv_heads, tokens, head_dim], .npy")->required();
  runs->add_option("--v", args->v, "values, like the keys")->required();
  runs->add_option("-o,--output", args->out, "write the output here, .npy f32")->type_name("OUT.npy");
  runs->add_option("--tokens", args->tokens, "only the last N tokens")->type_name("N")->check(CLI::PositiveNumber);
  runs->add_option("--report", args->report, "write the measurements here too")->type_name("FILE.json");
  runs->callback([&cli, args] { cli.action = [&cli, args] { return run(cli, *args); }; });

  CLI::App* verifies = app.add_subcommand("verify", "every kernel of every spec against attention in double precision");
  verifies->add_option("SPEC", args->specs, "spec file");
  verifies->add_option("--tokens", args->tokens, "also attend over N tokens")
      ->type_name("N")
      ->check(CLI::Range(1, kMostVerified));
  SweepArgs& sweep = args->sweep;
  CLI::Option* matrix = verifies->add_option("--matrix", sweep.matrix, "the cases of ggml's FLASH_ATTN_EXT tests");
  matrix->type_name("ggml");
  verifies->add_option("--sample", sweep.sample, "N cases of the matrix, every value of every axis among them")
      ->type_name("N")
      ->check(CLI::PositiveNumber)
      ->needs(matrix);
  verifies->add_flag("--share", sweep.shares_programs, "one program for cases with and without sinks and ALiBi")
      ->needs(matrix);
  verifies->add_option("--fuzz", sweep.fuzz, "N random specs and calls")->type_name("N")->check(CLI::PositiveNumber);
  verifies->add_option("--seed", sweep.seed, "of the sample, or of the first random spec (1)")->type_name("S");
  verifies->add_option("-j", sweep.threads, "compile and judge on N threads (--matrix, --fuzz)")
      ->type_name("N")
      ->check(CLI::PositiveNumber);
  verifies->callback([&cli, args] { cli.action = [&cli, args] { return verify(cli, *args); }; });
}

}  // namespace kvjit
