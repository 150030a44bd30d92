// The verb run: attention over K, V and Q from .npy files, on one device. It quantizes K and V, attends, and prints two
// errors: that of the kernel, against attention in double over the cache decoded by the reference codec, and that of
// the formats, against attention over the numbers before quantization.
// SPDX-License-Identifier: MIT
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <memory>

#include "tools/cli/cli.hpp"
#include "tools/cli/usage.hpp"
#include "tools/io/files.hpp"
#include "tools/io/npy.hpp"
#include "tools/io/report.hpp"
#include "tools/quality/kvq_files.hpp"
#include "tools/verify/harness.hpp"
#include "tools/verify/judge.hpp"
#include "tools/verify/measure.hpp"

namespace kvjit {
namespace {

constexpr long long kMaxTokens = 1 << 30;  // a token count is an int in the kernels' arguments

struct RunArgs {
  std::string spec;  // the spec file
  std::string q;     // .npy files
  std::string k;
  std::string v;
  std::string out;       // -o: .npy file of the output; empty: none
  std::string report;    // --report: JSON file of the measurements; empty: none
  long long tokens = 0;  // --tokens: only the last ones; 0: all
};

Json side_json(const SideInfo& side, const std::vector<std::uint8_t>& rows, std::size_t values,
               const ByteAgreement& bytes) {
  return {{"format", side.format},
          {"stored_bytes", rows.size()},
          {"bytes_per_value", static_cast<double>(rows.size()) / static_cast<double>(values)},
          {"bytes_unlike_reference_codec", bytes.code_differs + bytes.scale_differs}};
}

// Fails if the cache holds infinities. The input has none (read_kvq), so a value was too large for the format's numbers
// or scales, and the kernel's error would say nothing.
Result<void> check_fits(const std::string& file, const Format& format, std::span<const double> decoded) {
  const auto is_finite = [](double x) { return std::isfinite(x); };
  if (std::all_of(decoded.begin(), decoded.end(), is_finite)) return {};
  return fail(Code::bad_input, fmt::format("{}: has values too large for {}", file, format.name));
}

// Fails unless each row of V is the first values of the row of K, as v.in_keys has it.
Result<void> check_in_keys(const RunArgs& args, const std::vector<float>& k, int k_dim, const std::vector<float>& v,
                           int v_dim) {
  for (std::ptrdiff_t row = 0; row * v_dim < std::ssize(v); ++row)
    if (!std::equal(v.begin() + row * v_dim, v.begin() + (row + 1) * v_dim, k.begin() + row * k_dim))
      return fail(Code::bad_input,
                  fmt::format("{}: row {} is not the first {} values of the row of {}, as v.in_keys says", args.v, row,
                              v_dim, args.k));
  return {};
}

Result<int> run(const Cli& cli, const RunArgs& args) {
  KV_CHECK(check_apart({args.spec, args.q, args.k, args.v}, {args.out, args.report}));
  KV_TRY(registry, cli.registry());
  KV_CHECK(cli.check_arch(registry));
  KV_TRY(spec, cli.one_spec(args.spec));
  KV_TRY(k, read_kvq(args.k, "K [kv_heads, tokens, head_dim]"));
  KV_TRY(v, read_kvq(args.v, "V [kv_heads, tokens, head_dim]"));
  KV_TRY(q, read_kvq(args.q, "Q [q_heads, queries, head_dim]"));
  const long long tokens = args.tokens ? args.tokens : k.rows;
  const int dim = spec.head_dim, v_dim = spec.dim_of("v"), gqa = spec.q_heads_per_kv,
            queries =
                spec.varlen ? static_cast<int>(std::min<long long>(q.rows, spec.query_length)) : spec.query_length;
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
  if (tokens > kMaxTokens || k.heads > 65535) return fail(Code::unsupported, "at most 2^30 tokens and 65535 heads");

  KV_TRY(context, cli.context());
  KV_TRY(ready, make_ready(spec, registry, context));
  const ProgramSource& source = ready.program->source();
  KV_TRY(harness, KernelHarness::make(context, ready.program, ready.problem, {1, static_cast<int>(k.heads), tokens}));
  const std::vector<float> k_values = k.last(tokens), v_values = v.last(tokens), q_values = q.last(queries);
  if (spec.v.in_keys) KV_CHECK(check_in_keys(args, k_values, dim, v_values, v_dim));
  KV_CHECK(harness.quantize(0, k_values));
  if (!spec.v.in_keys) KV_CHECK(harness.quantize(1, v_values));
  set_new_tokens(harness, ready.problem, {&k_values, &v_values}, static_cast<int>(tokens));
  set_features(harness, ready.problem, queries);
  KernelHarness::Call call;
  if (spec.varlen) call.queries = queries;
  KV_TRY(outcome, harness.attend(q_values, call));

  KV_TRY(k_rows, harness.rows(0));
  KV_TRY(v_rows, harness.rows(1));
  const ScoreRule rule(ready.problem.features, ready.problem.causal, harness.features(), 0, queries, tokens);
  const ExactShape shape{static_cast<int>(k.heads), gqa, queries, dim, tokens, 0, ready.problem.causal, v_dim, &rule};
  const auto rounded_q = widened(rounded_to(spec.q_type, q_values));
  const auto keys = decode_rows(ready.problem.k, k_rows, dim), values = decode_rows(ready.problem.v, v_rows, v_dim);
  KV_CHECK(check_fits(args.k, ready.problem.k, keys));
  KV_CHECK(check_fits(args.v, ready.problem.v, values));
  std::vector<double> exact_lse;
  auto exact = exact_attention(shape, rounded_q, keys, values, &exact_lse);
  const bool has_hook = ready.problem.features.has_hook();
  if (has_hook) KV_CHECK(judge_by_reference(harness, q_values, call, exact, exact_lse));
  const double limit = kernel_limit(ready.problem.out_type) +
                       sparse_bound(shape, ready.problem.sparse_v, rounded_q, keys, values, exact);
  const auto unquantized = exact_attention(shape, widened(q_values), widened(k_values), widened(v_values));
  const Difference kernel = difference(outcome.out, exact, v_dim),
                   quality = difference(outcome.out, unquantized, v_dim);
  const ByteAgreement k_bytes = compare_rows(ready.problem.k, k_rows, encode_rows(ready.problem.k, k_values, dim));
  const ByteAgreement v_bytes = compare_rows(ready.problem.v, v_rows, encode_rows(ready.problem.v, v_values, v_dim));
  const long long differing =
      k_bytes.code_differs + k_bytes.scale_differs + v_bytes.code_differs + v_bytes.scale_differs;

  const DeviceInfo& info = context->backend()->info();
  Json data = {{"program", source.id}, {"title", source.title}, {"device", info.name}};
  data.update(text_json(info, source.arch));
  data.update({{"kv_heads", k.heads},
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
               {"kernel_error", kernel.relative_l2}});
  if (!has_hook) data.update({{"quality_error", quality.relative_l2}, {"quality_cosine", quality.cosine}});
  data["features"] = outcome.report.features;
  const bool is_prefill = std::any_of(outcome.report.kernels.begin(), outcome.report.kernels.end(),
                                      [](const std::string& name) { return name.starts_with("prefill."); });
  // prefill multiplies keys as halves, which moves scores in proportion to their size.
  const double error_of_lse = is_prefill ? lse_error(outcome.lse, exact_lse, largest_scores(shape, rounded_q, keys))
                                         : lse_error(outcome.lse, exact_lse);
  if (!outcome.lse.empty()) data["lse_error"] = error_of_lse;
  const auto side_text = [](const char* name, const Json& side) {
    return fmt::format("{} {}, {:.4f} bytes a value", name, side["format"].get<std::string>(),
                       side["bytes_per_value"].get<double>());
  };
  std::vector<std::pair<std::string, std::string>> lines = {
      {"program", source.id},
      {"device", device_text(info, source.arch)},
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
  if (!source.title.empty()) lines.insert(lines.begin(), {"title", source.title});
  if (info.is_gpu) {
    constexpr int kRepeats = 100;
    KV_TRY(timed, harness.time(q_values, {}, kRepeats));
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
  if (!args.report.empty())
    KV_CHECK(write_text(args.report, data.dump(2, ' ', false, Json::error_handler_t::replace) + "\n"));
  cli.print(data, info_text(lines));
  const bool is_lse_right = outcome.lse.empty() || is_within(error_of_lse, kMaxKernelError);
  if (kernel.relative_l2 <= limit && is_lse_right) return 0;
  if (!is_lse_right)
    cli.print_error(fmt::format("error: the error of lse is above {}\n", kMaxKernelError));
  else
    cli.print_error(fmt::format("error: the kernel error is above {}\n", limit));
  return static_cast<int>(Code::differs);
}

}  // namespace

void add_run_verb(CLI::App& app, Cli& cli) {
  const auto args = std::make_shared<RunArgs>();
  CLI::App* runs = app.add_subcommand("run", "quantize your K and V, attend, and measure the errors");
  runs->add_option("SPEC", args->spec, "spec file")->required()->type_name("SPEC.toml");
  runs->add_option("--q", args->q, "queries [q_heads, queries, head_dim]; the last ones are used")
      ->required()
      ->type_name("Q.npy");
  runs->add_option("--k", args->k, "keys [kv_heads, tokens, head_dim]")->required()->type_name("K.npy");
  runs->add_option("--v", args->v, "values, like the keys")->required()->type_name("V.npy");
  runs->add_option("-o,--output", args->out, "write the output here, .npy f32")->type_name("OUT.npy");
  whole_number(runs->add_option("--tokens", args->tokens, "only the last N tokens"), "N", 1, kMaxTokens)
      ->default_str("all");
  text_options(*runs, cli.options);
  runs->add_option("--report", args->report, "write the measurements here too")->type_name("FILE.json");
  runs->callback([&cli, args] { cli.action = [&cli, args] { return run(cli, *args); }; });
}

}  // namespace kvjit
