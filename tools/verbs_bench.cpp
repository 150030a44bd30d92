// The verb bench: how long one attention call over a cache of a given size takes, and how many bytes of cache that is a
// second. What is timed is the whole program of the spec (rotate, attend, merge, rotate back), as a graph where it is short.
// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>

#include "generator/codec.hpp"
#include "tools/cli.hpp"
#include "tools/measure.hpp"
#include "tools/report.hpp"
#include "tools/trial.hpp"

namespace kvjit {
namespace {

struct BenchArgs {
  std::vector<std::string> specs;
  std::vector<long long> tokens = {4096, 32768, 131072};
  int kv_heads = 8, repeats = 20;
  bool is_writing = false;
  double gigabytes = 1;
};

Result<void> check_gpu(const DeviceFacts& facts) {
  if (facts.is_gpu) return {};
  return fail(Code::environment, "bench needs a GPU: the CPU back-end checks numbers, not speed", {},
              {"`kvjit verify` runs on the CPU back-end"});
}

// The write path against a plain copy of as many bytes, in one run. GB/s count bytes read and bytes written.
Result<int> bench_write(const Cli& cli, const BenchArgs& args) {
  KV_TRY(registry, cli.registry());
  KV_TRY(specs, cli.specs(args.specs));
  KV_TRY(context, cli.context());
  const std::shared_ptr<Backend>& backend = context->backend();
  KV_CHECK(check_gpu(backend->facts()));
  const auto bytes = static_cast<std::size_t>(args.gigabytes * 1e9) / 4096 * 4096;
  double copy_rate = 0;
  {
    KV_TRY(from, Buffer::make(backend, bytes));
    KV_TRY(to, Buffer::make(backend, bytes));
    KV_TRY(timing,
           backend->time(
               [&](Stream stream) { return backend->copy_on_device(to.pointer(), from.pointer(), bytes, stream); },
               args.repeats));
    copy_rate = 2.0 * double(bytes) / timing.median_us / 1e3;
  }
  Json data = {{"device", backend->facts().name}, {"copy_gb_per_s", copy_rate}, {"results", Json::array()}};
  std::vector<std::vector<std::string>> lines;
  for (const Spec& spec : specs) {
    KV_TRY(ready, make_ready(spec, registry, context));
    const Problem& problem = ready.problem;
    for (const Element type : {Element::f16, Element::bf16, Element::f32}) {
      const long long width = type == Element::f32 ? 4 : 2;
      const long long tokens = static_cast<long long>(bytes) / (width * args.kv_heads * problem.head_dim);
      KV_TRY(trial, Trial::make(context, ready.program, problem, {1, args.kv_heads, tokens}));
      const auto sample = heavy_tailed(1, std::size_t(4096) * std::size_t(problem.head_dim), problem.head_dim);
      for (const bool is_writing : {true, false}) {
        KV_TRY(timing, trial.time_codec(0, is_writing, type, sample, args.repeats));
        const double moved = double(tokens) * args.kv_heads *
                             (double(width) * problem.head_dim + double(ready.program->source().k.row_bytes));
        const double rate = moved / timing.median_us / 1e3;
        const char* what = is_writing ? "quantise" : "dequantise";
        data["results"].push_back({{"format", problem.k.name},
                                   {"op", what},
                                   {"x", to_string(type)},
                                   {"bytes", moved},
                                   {"median_us", timing.median_us},
                                   {"low_us", timing.low_us},
                                   {"high_us", timing.high_us},
                                   {"gb_per_s", rate},
                                   {"of_copy", rate / copy_rate}});
        lines.push_back({problem.k.name, what, std::string(to_string(type)), fmt::format("{:.0f}", timing.median_us),
                         fmt::format("{:.0f}", timing.low_us), fmt::format("{:.0f}", timing.high_us),
                         fmt::format("{:.0f}", rate), fmt::format("{:.0f} %", 100 * rate / copy_rate)});
      }
    }
  }
  cli.print(data, fmt::format("{}, {} of x, copy of as much: {:.0f} GB/s\n{}", backend->facts().name,
                              byte_count(double(bytes)), copy_rate,
                              table_text({"format", "op", "x", "us", "low", "high", "GB/s", "of copy"}, lines)));
  return 0;
}

// Rows of realistic values, encoded once and repeated: what matters for time is that scales are ordinary numbers.
std::vector<std::uint8_t> filled_rows(const Format& format, int head_dim, std::size_t count, std::uint64_t seed) {
  constexpr std::size_t kDistinct = 512;
  const auto some = encode_rows(format, heavy_tailed(seed, kDistinct * head_dim, head_dim), head_dim);
  const std::size_t row = some.size() / kDistinct;
  std::vector<std::uint8_t> rows(count * row);
  for (std::size_t at = 0; at < rows.size(); at += some.size())
    std::copy_n(some.begin(), std::min(some.size(), rows.size() - at), rows.begin() + static_cast<std::ptrdiff_t>(at));
  return rows;
}

Result<int> bench(const Cli& cli, const BenchArgs& args) {
  KV_TRY(registry, cli.registry());
  KV_TRY(specs, cli.specs(args.specs));
  KV_TRY(context, cli.context());
  const DeviceFacts& facts = context->backend()->facts();
  KV_CHECK(check_gpu(facts));
  Json data = {{"device", facts.name}, {"kv_heads", args.kv_heads}, {"results", Json::array()}};
  std::vector<std::vector<std::string>> lines;
  for (const Spec& spec : specs) {
    KV_TRY(ready, make_ready(spec, registry, context));
    const Problem& problem = ready.problem;
    for (const long long tokens : args.tokens) {
      KV_TRY(trial, Trial::make(context, ready.program, problem, {1, args.kv_heads, tokens}));
      const std::size_t rows = std::size_t(args.kv_heads) * std::size_t(tokens);
      for (const int side : {0, 1})
        KV_CHECK(
            trial.set_rows(side, filled_rows(side == 0 ? problem.k : problem.v, problem.head_dim, rows, side + 1)));
      const auto q =
          heavy_tailed(3, std::size_t(args.kv_heads) * problem.q_heads_per_kv * problem.query_length * problem.head_dim,
                       problem.head_dim);
      KV_TRY(timing, trial.time(q, {int(tokens), {}, 0, false}, args.repeats));
      const double bytes =
          double(rows) * double(ready.program->source().k.row_bytes + ready.program->source().v.row_bytes);
      const double rate = bytes / timing.median_us / 1e3;
      data["results"].push_back({{"program", problem.id},
                                 {"tokens", tokens},
                                 {"cache_bytes", bytes},
                                 {"median_us", timing.median_us},
                                 {"low_us", timing.low_us},
                                 {"high_us", timing.high_us},
                                 {"gb_per_s", rate}});
      lines.push_back({problem.id, std::to_string(tokens), byte_count(bytes), fmt::format("{:.1f}", timing.median_us),
                       fmt::format("{:.1f}", timing.low_us), fmt::format("{:.1f}", timing.high_us),
                       fmt::format("{:.0f}", rate)});
    }
  }
  cli.print(data, fmt::format("{}, {} KV heads\n{}", facts.name, args.kv_heads,
                              table_text({"program", "tokens", "cache", "us", "low", "high", "GB/s"}, lines)));
  return 0;
}

}  // namespace

void add_bench_verb(CLI::App& app, Cli& cli) {
  auto args = std::make_shared<BenchArgs>();
  CLI::App* verb = app.add_subcommand("bench", "time attention over caches of several sizes, on a GPU");
  verb->add_option("SPEC", args->specs, "spec files")->required();
  verb->add_option("--tokens", args->tokens, "cache lengths")->delimiter(',')->check(CLI::Range(1, 1 << 24));
  verb->add_option("--kv-heads", args->kv_heads, "KV heads of the one sequence")->check(CLI::Range(1, 4096));
  verb->add_option("--repeats", args->repeats, "timed calls; the median counts")->check(CLI::Range(1, 10000));
  verb->add_flag("--write", args->is_writing, "time quantise and dequantise of K's format instead, against a copy");
  verb->add_option("--gigabytes", args->gigabytes, "with --write: size of the rows in memory")
      ->check(CLI::Range(0.001, 64.0));
  verb->callback([&cli, args] {
    cli.action = [&cli, args] { return args->is_writing ? bench_write(cli, *args) : bench(cli, *args); };
  });
}

}  // namespace kvjit
