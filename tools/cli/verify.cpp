// The verb verify: runs every kernel of every spec on seeded random numbers and judges it by attention in double
// precision over the cache decoded by the reference codec, never by another kernel. verify_one checks one spec: the
// bytes that quantize stores, the numbers that dequantize returns, attention over lengths around a tile, and inputs
// that bite (tools/verify/inputs/inputs.hpp). --matrix and --fuzz are in verify_ggml.cpp and verify_fuzz.cpp.
// SPDX-License-Identifier: MIT
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

#include "generator/base/display.hpp"
#include "tools/cli/cli.hpp"
#include "tools/cli/usage.hpp"
#include "tools/cli/verify_sweeps.hpp"
#include "tools/io/progress.hpp"
#include "tools/io/report.hpp"
#include "tools/io/terminal.hpp"
#include "tools/verify/ggml/matrix.hpp"
#include "tools/verify/harness.hpp"
#include "tools/verify/inputs/verify_inputs.hpp"
#include "tools/verify/judge.hpp"
#include "tools/verify/measure.hpp"
#include "tools/verify/verify_pages.hpp"

namespace kvjit {
namespace {

constexpr double kMaxDequantizeError = 1e-5;  // relative L2: float32 against double
// Largest fractions of bytes that may be rounded the other way if is_byte_exact() is false. The step of an f16 scale is
// 2^-11 of the scale, and float32 sums are off by about 1e-6, so about 1 scale in 500 changes. Fewer codes change.
constexpr double kMaxCodeBytes = 1e-3;
constexpr double kMaxScaleBytes = 1e-2;

struct VerifyArgs {
  std::vector<std::string> specs;  // files
  long long tokens = 0;            // --tokens: one more length to attend over; 0: none
  SweepArgs sweep;                 // --matrix, --fuzz and their options
};

// The result of one spec.
struct Verdict {
  double attention = 0;         // largest relative L2 error of attention
  double reference = 0;         // largest relative L2 error of the reference kernel
  double dequantize = 0;        // largest relative L2 error of dequantize
  double code_fraction = 0;     // largest fraction of code bytes that differ from the reference codec's
  long long scale_differs = 0;  // scale bytes of K and V that differ from the reference codec's
  bool is_by_rounding = false;  // prefill was above the limit, and passed because rounding q and k to f16 explains it
  std::vector<int> lengths;     // lengths in tokens over which attention was checked
  std::string failure;          // the first requirement that was not met; empty: passed
  void require(bool is_met, const std::string& what) {
    if (!is_met && failure.empty()) failure = what;
  }
};

constexpr int kMostFuzzed = 1'000'000;  // specs of one call; --seed goes on from there
constexpr int kMostVerified = 1 << 22;  // tokens; the oracle takes seconds at 2^17

// Overwrites the new tokens' rows with 0xFF. A right answer then proves that the call stored these rows.
Result<void> corrupt_new_tokens(KernelHarness& harness, const Problem& problem, int side,
                                std::vector<std::uint8_t> rows, int tokens) {
  const auto capacity = static_cast<std::size_t>(harness.shape().tokens);
  const std::size_t row = rows.size() / (static_cast<std::size_t>(harness.shape().kv_heads) * capacity);
  const auto count = static_cast<std::size_t>(problem.query_length);
  for (int head = 0; head < harness.shape().kv_heads; ++head) {
    const std::size_t end = static_cast<std::size_t>(head) * capacity + static_cast<std::size_t>(tokens);
    std::fill_n(rows.begin() + static_cast<std::ptrdiff_t>((end - count) * row), count * row, std::uint8_t(0xFF));
  }
  return harness.set_rows(side, rows);
}

// The numbers of queries of which a program is verified, ascending: with run-time query lengths, those around each
// range that a kernel serves, up to kMostQueries.
std::vector<int> lengths_of(const Problem& problem) {
  constexpr int kMostQueries = 160;
  if (!problem.varlen) return {problem.query_length};
  std::vector<int> lengths;
  for (const int rows : {1, 8, 9, 16, 17, 32, 33, 64, 65, 160})
    if (const int queries = std::min({std::max(rows / problem.q_heads_per_kv, 1), kMostQueries, problem.query_length});
        lengths.empty() || queries > lengths.back())
      lengths.push_back(queries);
  return lengths;
}

// Queries of a sequence that decode serves, at most.
int most_by_decode(const ProgramSource& source) {
  int most = source.buckets.empty() ? source.query_length : 0;
  for (const ProgramSource& bucket : source.buckets)
    if (bucket.kernels.count(Role::decode) != 0) most = bucket.query_length;
  return most;
}

// The kernels that attend, and how a call asks for them.
struct Way {
  Role role;
  ManyRows many_rows;
};
std::vector<Way> ways_of(const ProgramSource& source) {
  std::vector<Way> ways{{Role::decode, ManyRows::decode}, {Role::reference, ManyRows::chosen}};
  if (source.prefill_rows > 0) ways.push_back({Role::prefill, ManyRows::prefill});
  if (second_pass_of(source)) ways.push_back({Role::prefill, ManyRows::two_pass});
  return ways;
}

// The first `count` numbers of each row of `dim` numbers.
std::vector<float> fronts(const std::vector<float>& rows, int dim, int count) {
  std::vector<float> result;
  for (auto row = rows.begin(); row != rows.end(); row += dim) result.insert(result.end(), row, row + count);
  return result;
}

// longest: one more length besides those around a tile; 0: none.
Result<Verdict> verify_one(const Spec& spec, int longest, InputClasses classes, const Registry& registry,
                           const std::shared_ptr<Context>& context) {
  KV_TRY(ready, make_ready(spec, registry, context));
  const Problem& problem = ready.problem;
  const ProgramSource& source = ready.program->source();
  const std::vector<int> query_lengths = lengths_of(problem);
  const int most_queries = query_lengths.back();
  const int tile = source.tile_tokens, capacity = std::max({257, tile + 1, most_queries + 1, longest}),
            kv_heads = source.token_heads > 0 ? source.token_heads : 2;
  const Format* formats[2] = {&problem.k, &problem.v};
  KV_TRY(harness, KernelHarness::make(context, ready.program, problem, {1, kv_heads, capacity}));
  KV_CHECK(harness.vary_head_scales());
  Verdict verdict;
  std::vector<double> decoded[2];
  std::vector<float> inputs[2];
  std::vector<std::uint8_t> stored[2];
  for (int side : {0, 1}) {
    const int dim = problem.dim(side);
    const auto& x = inputs[side] =
        side == 1 && problem.values_in_keys
            ? fronts(inputs[0], problem.head_dim, dim)
            : heavy_tailed(static_cast<std::uint64_t>(side) + 1,
                           static_cast<std::size_t>(kv_heads) * static_cast<std::size_t>(capacity) *
                               static_cast<std::size_t>(dim),
                           dim);
    KV_CHECK(harness.quantize(side, x));
    KV_TRY(rows, harness.rows(side));
    const ByteAgreement bytes =
        compare_rows(*formats[side], rows, encode_rows(*formats[side], x, dim, harness.row_scales(side)));
    const double fraction = static_cast<double>(bytes.code_differs) / static_cast<double>(bytes.code_bytes);
    verdict.code_fraction = std::max(verdict.code_fraction, fraction);
    verdict.scale_differs += bytes.scale_differs;
    const double scale_fraction =
        static_cast<double>(bytes.scale_differs) / static_cast<double>(std::max(bytes.scale_bytes, 1LL));
    verdict.require(is_byte_exact(*formats[side]) ? bytes.code_differs + bytes.scale_differs == 0
                                                  : fraction <= kMaxCodeBytes && scale_fraction <= kMaxScaleBytes,
                    fmt::format("quantize of {}: {} code and {} scale bytes differ from the reference codec",
                                formats[side]->name, bytes.code_differs, bytes.scale_differs));
    decoded[side] = decode_rows(*formats[side], rows, dim, harness.row_scales(side));
    stored[side] = rows;
    KV_TRY(dequantized, harness.dequantize(side));
    const double error = difference(dequantized, decoded[side], dim).relative_l2;
    verdict.dequantize = std::max(verdict.dequantize, error);
    verdict.require(is_within(error, kMaxDequantizeError),
                    fmt::format("dequantize of {}: error {:.2e}", formats[side]->name, error));
  }
  const auto all_q = rounded_to(
      problem.q_type, heavy_tailed(3, std::size_t(kv_heads) * problem.q_heads_per_kv * most_queries * problem.head_dim,
                                   problem.head_dim));
  std::vector<std::string> features = problem.features.names();
  if (problem.causal) features.insert(features.begin(), "causal");
  for (const int queries : query_lengths)
    for (const int tokens : {1, tile - 1, tile, tile + 1, 257, queries + 1, longest}) {
      // A call always has at least as many tokens as queries.
      if (tokens < queries || tokens == 0) continue;
      if (tokens == queries + 1 && tokens <= 257 && tokens != longest) continue;
      verdict.lengths.push_back(tokens);
      const auto q =
          std::span(all_q).first(std::size_t(kv_heads) * problem.q_heads_per_kv * queries * problem.head_dim);
      set_features(harness, problem, queries);
      const ScoreRule rule(problem.features, problem.causal, harness.features(), 0, queries, tokens);
      const ExactShape shape{kv_heads,       problem.q_heads_per_kv, queries, problem.head_dim, tokens, capacity,
                             problem.causal, problem.v_dim(),        &rule};
      std::vector<double> exact_lse;
      auto exact = exact_attention(shape, widened(q), decoded[0], decoded[1], &exact_lse);
      KernelHarness::Call judged{tokens, {}, 0, false};
      if (problem.varlen) judged.queries = queries;
      if (problem.features.has_hook()) KV_CHECK(judge_by_reference(harness, q, judged, exact, exact_lse));
      const double bound = sparse_bound(shape, problem.sparse_v, widened(q), decoded[0], decoded[1], exact);
      set_new_tokens(harness, problem, {&inputs[0], &inputs[1]}, tokens);
      for (const auto& [role, many_rows] : ways_of(source)) {
        if (role == Role::decode && queries > most_by_decode(source)) continue;
        const bool is_reference = role == Role::reference;
        for (const int side : {0, 1})
          if (problem.append && !is_reference)
            KV_CHECK(corrupt_new_tokens(harness, problem, side, stored[side], tokens));
        KernelHarness::Call call{tokens, {}, 0, is_reference};
        if (problem.varlen) call.queries = queries;
        call.many_rows = many_rows;
        KV_TRY(outcome, harness.attend(q, call));
        const double error = difference(outcome.out, exact, problem.v_dim()).relative_l2;
        double& worst = is_reference ? verdict.reference : verdict.attention;
        worst = std::isnan(error) ? error : std::max(worst, error);
        const double strict = kernel_limit(problem.out_type) + (is_reference ? 0 : bound);
        double limit = strict;
        // prefill multiplies keys as halves. Over keys of very large norm their rounding alone may exceed the limit.
        if (role == Role::prefill && error > strict)
          limit += kRoundingDeviations * rounding_deviation(shape, widened(q), decoded[0], decoded[1], exact);
        verdict.is_by_rounding |= is_within(error, limit) && error > strict;
        verdict.require(is_within(error, limit),
                        fmt::format("{} over {} tokens: error {:.2e}", to_string(role), tokens, error));
        // Keys as halves move scores in proportion to their size.
        const double lse = role == Role::prefill && problem.features.lse
                               ? lse_error(outcome.lse, exact_lse, largest_scores(shape, widened(q), decoded[0]))
                               : lse_error(outcome.lse, exact_lse);
        verdict.require(is_within(lse, kMaxKernelError) && outcome.lse.empty() != problem.features.lse,
                        fmt::format("lse of {} over {} tokens: error {:.2e}", to_string(role), tokens, lse));
        // Run-time query lengths have a kernel of the role for each range of queries.
        const ProgramSource& owner = many_rows == ManyRows::two_pass ? *second_pass_of(source) : source;
        const std::string kernel = problem.varlen ? fmt::format("{}.", to_string(role)) : owner.kernels.at(role).name;
        const auto has_role = [&](const std::string& name) { return name.starts_with(kernel); };
        verdict.require(std::count_if(outcome.report.kernels.begin(), outcome.report.kernels.end(), has_role) == 1,
                        fmt::format("the launch ran {}, not {}", fmt::join(outcome.report.kernels, ", "), kernel));
        for (const int side : {0, 1}) {
          if (!problem.append) break;
          KV_TRY(rows, harness.rows(side));
          const ByteAgreement bytes = compare_rows(*formats[side], rows, stored[side]);
          const long long differ = bytes.code_differs + bytes.scale_differs,
                          appended = (bytes.code_bytes + bytes.scale_bytes) * queries / capacity;
          verdict.require(differ <= allowed_append_bytes(*formats[side], appended),
                          fmt::format("append of {} at {} tokens: {} bytes differ from those of quantize",
                                      formats[side]->name, tokens, differ));
        }
        const LaunchReport& report = outcome.report;
        verdict.require(report.features == features,
                        fmt::format("the launch had the features {}, not {}", fmt::join(report.features, ", "),
                                    fmt::join(features, ", ")));
        verdict.require(report.k_reader == problem.k.name && report.v_reader == problem.v.name &&
                            (report.converted_bytes > 0) == (many_rows == ManyRows::two_pass),
                        fmt::format("read K as {} and V as {}, converted {} bytes", report.k_reader, report.v_reader,
                                    report.converted_bytes));
      }
    }
  if (problem.page_tokens > 0) {
    KV_TRY(pages, verify_pages(context, ready.program, problem, kernel_limit(problem.out_type)));
    verdict.attention = std::isnan(pages.worst) ? pages.worst : std::max(verdict.attention, pages.worst);
    verdict.require(pages.failure.empty(), pages.failure);
  }
  if (!problem.features.has_hook()) {  // a hook has no oracle
    KV_TRY(failure, verify_inputs(context, ready.program, problem, classes));
    verdict.require(failure.empty(), failure);
  }
  return verdict;
}

// The results of the spec files so far. Refusals and failures are printed last, where a reader sees them.
struct Verification {
  Json results = Json::array();
  std::vector<std::vector<std::string>> rows;
  std::string complaints;  // text of refusals and failures
  int exit_code = 0;       // the code of the first complaint

  void refuse(const std::string& file, const std::string& name, const std::string& label, const Error& error) {
    rows.push_back({"refused", name, "-", "-", "-", "-"});
    results.push_back({{"spec", file}, {"combination", label}, {"is_ok", false}, {"error", to_json(error)}});
    complain(render(error), error.code);
  }
  void add(const Spec& spec, const std::string& name, const Verdict& verdict) {
    const bool is_ok = verdict.failure.empty();
    const char* const outcome = !is_ok ? "differs" : verdict.is_by_rounding ? "ok by rounding" : "ok";
    rows.push_back({outcome, name, fmt::format("{:.1e}", verdict.attention), fmt::format("{:.1e}", verdict.reference),
                    fmt::format("{:.1e}", verdict.dequantize), short_number(verdict.code_fraction)});
    Json result = {{"spec", spec.file},
                   {"combination", spec.label},
                   {"is_ok", is_ok},
                   {"tokens", verdict.lengths},
                   {"attention_error", verdict.attention},
                   {"passed_by_rounding", verdict.is_by_rounding},
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

Result<int> verify(const Cli& cli, const VerifyArgs& args) {
  const SweepArgs& sweep = args.sweep;
  const int modes = !args.specs.empty() + !sweep.matrix.empty() + (sweep.fuzz > 0);
  if (modes != 1)
    return fail(Code::usage, "verify takes specs, or --matrix, or --fuzz", {},
                {"`kvjit verify SPEC...`", "`kvjit verify --matrix ggml [--sample N]`", "`kvjit verify --fuzz N`"});
  if (!sweep.matrix.empty()) return verify_matrix(cli, sweep);
  if (sweep.fuzz > 0) return verify_fuzz(cli, sweep);
  KV_TRY(registry, cli.registry());
  KV_CHECK(cli.check_arch(registry));
  KV_TRY(context, cli.context());
  // A file that gives no spec is a task too: it is refused in its turn.
  struct Task {
    std::string file, name;
    Result<Spec> spec;
  };
  std::vector<Task> tasks;
  for (const std::string& file : args.specs) {
    const auto specs = cli.specs({file});
    if (!specs) {
      tasks.push_back({file, file, tl::unexpected(specs.error())});
      continue;
    }
    cli.talk(
        fmt::format("{}: {} spec{} on {}", file, specs->size(), specs->size() == 1 ? "" : "s", shown_device(*context)));
    for (const Spec& spec : *specs) {
      if (!spec.hook.empty())
        cli.talk(
            fmt::format("{}: attention is judged by the reference kernel: nothing else knows the hook", spec.file));
      tasks.push_back({file, spec.label.empty() ? spec.file : fmt::format("{} {}", spec.file, spec.label), spec});
    }
  }
  if (sweep.skip >= tasks.size())
    return fail(Code::usage, fmt::format("--skip {}: there are {} specs", sweep.skip, tasks.size()));
  tasks.erase(tasks.begin(), tasks.begin() + static_cast<std::ptrdiff_t>(sweep.skip));

  const std::vector<std::string> headings = {"", "spec", "attention", "reference", "dequantize", "codes"};
  std::size_t longest = 0;
  for (const Task& task : tasks) longest = std::max(longest, task.name.size());
  const std::vector<int> widths = {-7, -static_cast<int>(longest), 10, 10, 10, 10};
  const auto print_row = [&](const std::vector<std::string>& cells) {
    if (cli.shows_rows())
      print_above(stdout, for_terminal(stdout, displayed_lines(fixed_row(cells, widths), 8 * kShownColumns)));
  };
  Verification all;
  std::vector<Result<Verdict>> verdicts(tasks.size(), fail(Code::cancelled, "not verified"));
  const InputClasses classes = sweep.inputs.empty() ? InputClasses::all() : classes_of(sweep.inputs);
  const auto judge = [&, &registry = registry, &context = context](std::size_t i) {
    const Task& task = tasks[i];
    verdicts[i] = task.spec ? verify_one(*task.spec, static_cast<int>(args.tokens), classes, registry, context)
                            : Result<Verdict>(tl::unexpected(task.spec.error()));
    return verdicts[i] || !Interrupts::is_requested();  // Ctrl-C ends the compiler too, which is no failure
  };
  std::size_t done = 0;
  {
    const Interrupts interrupts;
    Progress progress(tasks.size(), cli.shows_progress());
    print_row(headings);
    const auto report = [&](std::size_t i) {
      if (verdicts[i])
        all.add(*tasks[i].spec, tasks[i].name, *verdicts[i]);
      else
        all.refuse(tasks[i].file, tasks[i].name, tasks[i].spec ? tasks[i].spec->label : "", verdicts[i].error());
      print_row(all.rows.back());
      progress.show(i + 1);
    };
    done = in_order(tasks.size(), threads_of(sweep), judge, report, Interrupts::is_requested);
  }
  const DeviceInfo& info = context->backend()->info();
  Json data = {{"device", info.name}};
  if (!context->options().arch.empty()) data.update(text_json(info, info.arch));
  data["specs"] = all.results;
  if (done < tasks.size()) data["specs_left"] = tasks.size() - done;
  const std::string table = cli.shows_rows() ? "" : table_text(headings, all.rows),
                    text = context->options().arch.empty() ? "" : fmt::format("on {}\n", shown_device(*context));
  cli.print(data, for_terminal(stdout, table + text));
  cli.print_error(all.complaints);
  if (done < tasks.size()) return cli.interrupted(done, tasks.size(), {{"--skip", std::to_string(sweep.skip + done)}});
  return all.exit_code;
}

}  // namespace

void add_verify_verb(CLI::App& app, Cli& cli) {
  const auto args = std::make_shared<VerifyArgs>();
  CLI::App* verifies = app.add_subcommand("verify", "every kernel of every spec against attention in double precision");
  verifies->add_option("SPEC", args->specs, "spec files")->type_name("SPEC.toml");
  whole_number(verifies->add_option("--tokens", args->tokens, "also attend over N tokens"), "N", 1, kMostVerified);
  text_options(*verifies, cli.options);
  SweepArgs& sweep = args->sweep;
  CLI::Option* matrix =
      one_of(verifies->add_option("--matrix", sweep.matrix, "the cases of ggml's FLASH_ATTN_EXT tests"), {"ggml"});
  whole_number(
      verifies->add_option("--sample", sweep.sample, "N cases of the matrix, every value of every axis among them"),
      "N", 1, kGgmlCases)
      ->needs(matrix)
      ->default_str("all");
  verifies->add_flag("--share", sweep.shares_programs, "one program for cases with and without sinks and ALiBi")
      ->needs(matrix);
  kernel_option(*verifies, sweep.many_rows, "of the matrix: what attends in cases whose program has it")->needs(matrix);
  whole_number(verifies->add_option("--fuzz", sweep.fuzz, "N random specs and calls"), "N", 1, kMostFuzzed);
  std::vector<std::string> classes = {"ordinary"};
  for (int i = 0; i < kInputClasses; ++i) classes.emplace_back(to_string(InputClass(i)));
  one_of(verifies->add_option("--inputs", sweep.inputs, "classes of inputs besides N(0, 1)"), classes)
      ->delimiter(',')
      ->excludes(matrix)
      ->default_str("all");
  whole_number(verifies->add_option("--seed", sweep.seed, "of the sample, or of the first random spec"), "S", 0,
               std::numeric_limits<long long>::max() - kMostFuzzed)
      ->capture_default_str();
  whole_number(verifies->add_option("-j", sweep.threads, "compile and judge on N threads"), "N", 1, kMostThreads)
      ->default_str(kAllProcessors);
  whole_number(verifies->add_option("--skip", sweep.skip, "leave out the first N specs, to go on after Ctrl-C"), "N", 0,
               1 << 30)
      ->excludes(matrix)
      ->excludes("--fuzz");
  verifies->callback([&cli, args] { cli.action = [&cli, args] { return verify(cli, *args); }; });
}

}  // namespace kvjit
