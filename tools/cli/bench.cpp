// The verb bench: times one attention call over caches of several sizes, and compares it with the probe, which only
// reads as many bytes. It times the whole program of the spec; the report names the kernels. --write times quantize and
// dequantize instead. --tune times other shapes of blocks and writes the best as a row of specs/tuning.
// SPDX-License-Identifier: MIT
#include "tools/bench/bench.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <functional>
#include <memory>
#include <numeric>

#include "generator/formats/reference_codec.hpp"
#include "runtime/base/input_file.hpp"
#include "tools/bench/bench_operations.hpp"
#include "tools/bench/clock_meter.hpp"
#include "tools/bench/tune.hpp"
#include "tools/cli/cli.hpp"
#include "tools/cli/usage.hpp"
#include "tools/io/files.hpp"
#include "tools/io/progress.hpp"
#include "tools/io/report.hpp"
#include "tools/io/terminal.hpp"
#include "tools/verify/harness.hpp"
#include "tools/verify/measure.hpp"

namespace kvjit {
namespace {

struct BenchArgs {
  std::vector<std::string> specs;                               // files
  std::vector<long long> tokens = {4096, 8192, 32768, 131072};  // --tokens: of each sequence
  std::vector<int> batch = {1};                                 // --batch: sequences of a call
  std::vector<int> queries;                                     // --queries: of each sequence, for query_length = "any"
  std::vector<int> ragged;                                      // --ragged: queries of each sequence of one batch
  int kv_heads = 8;                                             // --kv-heads
  int repeats = 20;                                             // --repeats: timed graphs of 20 calls
  double query_scale = 1;                                       // --query-scale: factor of the queries
  std::string probe;                                            // --probe: RuntimeBench::probe
  bool is_runtime = false;                                      // --runtime
  std::string html;                                             // --html: file; empty: none
  std::string out_dir;                                          // -o: folder for --tune
  bool is_writing = false;                                      // --write
  bool has_operations = false;                                  // --operations
  bool is_tuning = false;                                       // --tune
  bool has_lengths = false;                                     // --lengths: lengths in device memory
  ManyRows many_rows = ManyRows::chosen;                        // --kernel
  std::size_t skip = 0;  // --skip: rows, or specs of --write and --tune, left out at the begin
  double gigabytes = 1;  // --gigabytes: 1e9 bytes of rows for --write
};

// Opens the GPU. The CPU back-end never takes its place.
Result<std::shared_ptr<Context>> gpu_context(const Cli& cli) {
  Options options = cli.options;
  if (options.device == DeviceKind::automatic) options.device = DeviceKind::gpu;
  options.log = [&cli](const std::string& line) { cli.talk(line); };
  auto context = Context::open(options);
  const bool has_no_gpu = context ? !(*context)->backend()->info().is_gpu : context.error().code == Code::environment;
  if (!has_no_gpu) return context;
  std::vector<std::string> notes = {"`kvjit verify` runs on the CPU back-end"};
  if (!context) notes.insert(notes.begin(), context.error().message);
  return fail(Code::environment, "bench needs a GPU: the CPU back-end checks numbers, not speed", {}, notes);
}

// Calls measure(spec) for each spec but the first `skip`, with progress, until Ctrl-C. Returns the number of calls.
Result<std::size_t> for_each_spec(const Cli& cli, const std::vector<Spec>& specs, std::size_t skip,
                                  const std::function<Result<void>(const Spec&)>& measure) {
  if (skip >= specs.size()) return fail(Code::usage, fmt::format("--skip {}: there are {} specs", skip, specs.size()));
  const Interrupts interrupts;
  Progress progress(specs.size() - skip, cli.shows_progress());
  std::size_t done = 0;
  for (; skip + done < specs.size() && !Interrupts::is_requested(); progress.show(++done))
    KV_CHECK(measure(specs[skip + done]));
  return done;
}

// The exit code after for_each_spec. It says how to go on if specs are left.
int exit_code(const Cli& cli, const std::vector<Spec>& specs, std::size_t skip, std::size_t done) {
  if (skip + done == specs.size()) return 0;
  return cli.interrupted(done, specs.size() - skip, {{"--skip", std::to_string(skip + done)}});
}

// bench --write: times quantize and dequantize, and a plain copy of as many bytes in the same run. GB/s count the bytes
// read and the bytes written.
Result<int> bench_write(const Cli& cli, const BenchArgs& args) {
  KV_TRY(registry, cli.registry());
  KV_TRY(specs, cli.specs(args.specs));
  KV_TRY(context, gpu_context(cli));
  const std::shared_ptr<Backend>& backend = context->backend();
  const auto bytes = static_cast<std::size_t>(args.gigabytes * 1e9) / 4096 * 4096;
  double copy_rate = 0;
  {
    KV_TRY(from, Buffer::make(backend, bytes));
    KV_TRY(to, Buffer::make(backend, bytes));
    KV_TRY(timing,
           backend->time(
               [&](Stream stream, int) { return backend->copy_on_device(to.pointer(), from.pointer(), bytes, stream); },
               args.repeats, 1));
    copy_rate = 2.0 * double(bytes) / timing.median_us / 1e3;
  }
  Json data = {{"device", backend->info().name}, {"copy_gb_per_s", copy_rate}, {"results", Json::array()}};
  std::vector<std::vector<std::string>> lines;
  KV_TRY(done, for_each_spec(cli, specs, args.skip, [&](const Spec& spec) -> Result<void> {
           KV_TRY(ready, make_ready(spec, registry, context));
           const Problem& problem = ready.problem;
           const auto add = [&](std::string_view x, const std::string& what, double moved,
                                const Backend::Timing& timing) {
             const double rate = moved / timing.median_us / 1e3;
             data["results"].push_back({{"format", problem.k.name},
                                        {"op", what},
                                        {"x", x},
                                        {"bytes", moved},
                                        {"median_us", timing.median_us},
                                        {"low_us", timing.low_us},
                                        {"high_us", timing.high_us},
                                        {"gb_per_s", rate},
                                        {"of_copy", rate / copy_rate}});
             lines.push_back({problem.k.name, what, std::string(x), fmt::format("{:.0f}", timing.median_us),
                              fmt::format("{:.0f}", timing.low_us), fmt::format("{:.0f}", timing.high_us),
                              fmt::format("{:.0f}", rate), fmt::format("{:.0f} %", 100 * rate / copy_rate)});
             if (cli.shows_progress())
               print_above(stderr, fmt::format("{} {} {}: {:.0f} GB/s\n", problem.k.name, what, x, rate));
           };
           for (const Element type : {Element::f16, Element::bf16, Element::f32}) {
             const long long width = type == Element::f32 ? 4 : 2;
             const long long tokens = static_cast<long long>(bytes) / (width * args.kv_heads * problem.head_dim);
             KV_TRY(harness, KernelHarness::make(context, ready.program, problem, {1, args.kv_heads, tokens}));
             const auto sample = heavy_tailed(1, std::size_t(4096) * std::size_t(problem.head_dim), problem.head_dim);
             for (const bool is_writing : {true, false}) {
               KV_TRY(timing, harness.time_codec(0, is_writing, type, sample, args.repeats));
               const double moved = double(tokens) * args.kv_heads *
                                    (double(width) * problem.head_dim + double(ready.program->source().k.row_bytes));
               add(to_string(type), is_writing ? "quantize" : "dequantize", moved, timing);
             }
             if (!args.has_operations || type != Element::f16) continue;
             KV_TRY(both, KernelHarness::make(context, ready.program, problem, {1, args.kv_heads, tokens, 2}));
             std::vector<std::uint8_t> rows;
             for (std::size_t at = 0; at < sample.size(); at += std::size_t(problem.head_dim)) {
               const auto row = encode_row(problem.k, std::span(sample).subspan(at, std::size_t(problem.head_dim)));
               rows.insert(rows.end(), row.begin(), row.end());
             }
             KV_CHECK(both.fill(0, rows));
             KV_TRY(x, Buffer::make(backend, bytes));
             KV_CHECK(backend->fill(x.pointer(), 0, bytes));
             KV_TRY(times, time_operations(context, registry, ready.program, problem, both, x.pointer(), args.repeats));
             for (const OperationTime& one : times) add(to_string(type), one.what, one.bytes, one.timing);
           }
           return {};
         }));
  cli.print(data, fmt::format("{}, {} of x, copy of as much: {:.0f} GB/s\n{}", backend->info().name,
                              byte_count(double(bytes)), copy_rate,
                              table_text({"format", "op", "x", "us", "low", "high", "GB/s", "of copy"}, lines)));
  return exit_code(cli, specs, args.skip, done);
}

// A program to be timed, and the caches over which it is timed.
struct Job {
  Ready ready;
  std::vector<CacheShape> shapes;        // the caches over which it is timed
  std::vector<std::vector<int>> counts;  // with run-time query lengths: queries of the sequences, for each shape
  std::vector<std::uint8_t> rows[2];     // encoded rows of K and V that fill the caches; their scales are finite
};

Result<Job> make_job(const Spec& spec, const BenchArgs& args, const Registry& registry,
                     const std::shared_ptr<Context>& context) {
  constexpr std::size_t kDistinct = 509;  // distinct rows: a prime, so that every warp reads each of them
  const DeviceInfo& info = context->backend()->info();
  KV_TRY(ready, make_ready(spec, registry, context));
  if (!ready.problem.varlen && !(args.queries.empty() && args.ragged.empty()))
    return fail(
        Code::usage,
        fmt::format("--queries, --ragged: {} has {} queries in each sequence", spec.file, ready.problem.query_length),
        spec.where("attention.query_length"), {"query_length = \"any\" lets each call say how many it has"});
  if (ready.problem.varlen && args.is_tuning)
    return fail(Code::unsupported, "shapes of blocks are measured for specs with a number of queries",
                spec.where("attention.query_length"),
                {"query_length = \"any\" takes the shapes that were measured for its numbers of queries"});
  Job job{ready, {}, {}, {}};
  const ProgramSource& source = ready.program->source();
  std::vector<std::vector<int>> all_counts;  // empty: each sequence has query_length queries
  for (const int batch : args.ragged.empty() ? args.batch : std::vector<int>{static_cast<int>(args.ragged.size())}) {
    std::vector<std::vector<int>> counts = {args.ragged};
    if (args.ragged.empty() && ready.problem.varlen) {
      counts.clear();
      for (const int queries : args.queries.empty() ? std::vector<int>{1} : args.queries)
        counts.emplace_back(static_cast<std::size_t>(batch), queries);
    }
    for (const long long tokens : args.tokens)
      for (const std::vector<int>& of_sequences : counts) {
        CacheShape shape{batch, args.kv_heads, tokens, 1};
        const auto one = static_cast<double>(memory_bytes(source, shape));
        shape.copies = copies_for(one, info);
        KV_CHECK(check_memory(source, shape, info));
        job.shapes.push_back(shape), job.counts.push_back(of_sequences);
      }
  }
  for (const int side : {0, 1}) {
    const int dim = ready.problem.dim(side);
    job.rows[side] =
        encode_rows(side == 0 ? ready.problem.k : ready.problem.v,
                    heavy_tailed(static_cast<std::uint64_t>(side) + 1, kDistinct * std::size_t(dim), dim), dim);
  }
  return job;
}

// Whether sequences have different numbers of queries.
bool is_ragged_batch(const std::vector<int>& counts) {
  return std::adjacent_find(counts.begin(), counts.end(), std::not_equal_to<>()) != counts.end();
}

// A harness with the job's rows in its cache number i.
Result<KernelHarness> filled_harness(const Job& job, std::size_t i, const std::shared_ptr<Context>& context) {
  const CacheShape& shape = job.shapes[i];
  KV_TRY(harness, KernelHarness::make(context, job.ready.program, job.ready.problem, shape));
  const Problem& problem = job.ready.problem;
  const auto new_tokens =
      std::size_t(shape.sequences) * std::size_t(shape.kv_heads) * std::size_t(problem.query_length);
  for (const int side : {0, 1}) {
    KV_CHECK(harness.fill(side, job.rows[side]));
    const int dim = problem.dim(side);
    if (problem.append) harness.set_new_tokens(side, heavy_tailed(4, new_tokens * std::size_t(dim), dim), Element::f16);
  }
  // Variant 1 of random_features: one mask for all heads, as in the test suites of other libraries.
  const std::vector<int>& counts = job.counts[i];
  const bool is_ragged = is_ragged_batch(counts);
  const int queries = is_ragged        ? std::accumulate(counts.begin(), counts.end(), 0)
                      : counts.empty() ? problem.query_length
                                       : counts[0];
  FeatureInputs features = random_features(problem.features,
                                           {is_ragged ? 1 : shape.sequences, shape.kv_heads * problem.q_heads_per_kv,
                                            queries, static_cast<int>(shape.tokens), is_ragged ? shape.sequences : 0},
                                           11, 1);
  for (std::size_t i = 0; i < features.token_ranges.size(); ++i)  // all tokens, as the figures count them
    features.token_ranges[i] = i % 2 == 0 ? 0 : static_cast<int>(shape.tokens);
  harness.set_features(features);
  return std::move(harness);
}

std::vector<float> queries(const Job& job, std::size_t i, double factor) {
  const Problem& problem = job.ready.problem;
  const CacheShape& shape = job.shapes[i];
  const std::vector<int>& counts = job.counts[i];
  const int all =
      counts.empty() ? shape.sequences * problem.query_length : std::accumulate(counts.begin(), counts.end(), 0);
  const auto rows = std::size_t(all) * std::size_t(shape.kv_heads) * std::size_t(problem.q_heads_per_kv);
  auto q = heavy_tailed(3, rows * std::size_t(problem.head_dim), problem.head_dim);
  for (float& x : q) x *= static_cast<float>(factor);
  return q;
}

KernelHarness::Call call_of(const Job& job, std::size_t i, const BenchArgs& args) {
  const CacheShape& shape = job.shapes[i];
  KernelHarness::Call call;
  if (is_ragged_batch(job.counts[i]))
    call.query_counts = job.counts[i];
  else if (!job.counts[i].empty())
    call.queries = job.counts[i][0];
  call.tokens = static_cast<int>(shape.tokens);
  call.many_rows = args.many_rows;
  if (args.has_lengths) call.lengths.assign(static_cast<std::size_t>(shape.sequences), call.tokens);
  return call;
}

// Calls that are bound by arithmetic bring the board to its power limit within this time.
constexpr double kWarmUpUs = 150e3;

// The kernels that measure the device.
struct Meters {
  Probe probe;
  ClockMeter clock;
};

Result<BenchRow> bench_one(const Job& job, std::size_t i, const Meters& meters, const BenchArgs& args,
                           const std::shared_ptr<Context>& context) {
  const Problem& problem = job.ready.problem;
  const CacheShape& shape = job.shapes[i];
  const std::vector<int>& counts = job.counts[i];
  KV_TRY(harness, filled_harness(job, i, context));
  const auto q = queries(job, i, args.query_scale);
  const KernelHarness::Call call = call_of(job, i, args);
  KV_TRY(timed, harness.time(q, call, args.repeats));
  KV_TRY(kernels, launched_kernels(*job.ready.program, timed.report));
  BenchRow row;
  row.kernels = std::move(kernels);
  if (row.is_prefill()) {
    const double us = timed.timing.median_us * timed.timing.calls;
    KV_CHECK(harness.time(q, call, static_cast<int>(std::clamp(std::ceil(kWarmUpUs / us), 1., 1000.))));
    KV_TRY(warm, harness.time(q, call, args.repeats));
    timed = std::move(warm);
    KV_TRY(mhz, meters.clock.measure());
    row.clock_mhz = mhz;
    row.peak_tflop_per_s = 1e-6 * mhz * problem.arch.tensor_flop_per_cycle * context->backend()->info().multiprocessors;
  }
  std::vector<DevicePointer> places;
  for (int copy = 0; copy < shape.copies; ++copy) places.push_back(harness.memory(copy));
  const auto bytes = static_cast<std::size_t>(timed.report.cache_bytes);
  KV_TRY(roof, meters.probe.time(places, bytes, args.repeats));

  row.program = problem.id;
  if (!counts.empty())
    row.program += fmt::format(" of {} queries", is_ragged_batch(counts) ? fmt::format("{}", fmt::join(counts, " + "))
                                                                         : std::to_string(counts[0]));
  row.k_format = timed.report.k_reader;
  row.v_format = timed.report.v_reader;
  row.head_dim = problem.head_dim;
  row.q_heads_per_kv = problem.q_heads_per_kv;
  row.query_length = counts.empty() ? problem.query_length : *std::max_element(counts.begin(), counts.end());
  row.is_causal = problem.causal;
  row.shape = shape;
  row.cache_bytes = double(bytes);
  row.flop = counts.empty() ? attention_flop(problem, shape) : attention_flop(problem, shape, counts);
  row.timing = timed.timing;
  row.probe = roof;
  row.peak_gb_per_s = context->backend()->info().peak_gb_per_s();
  row.blocks = timed.report.blocks;
  return row;
}

// A cache as text: sequences x KV heads x tokens.
std::string cache_text(const CacheShape& shape) {
  return fmt::format("{} x {} x {}", shape.sequences, shape.kv_heads, shape.tokens);
}

Result<int> bench(const Cli& cli, const BenchArgs& args) {
  KV_TRY(registry, cli.registry());
  KV_TRY(specs, cli.specs(args.specs));
  KV_TRY(context, gpu_context(cli));
  const DeviceInfo& info = context->backend()->info();
  // All jobs are created before any is timed, so that a refused spec or size loses no measurements.
  std::vector<Job> jobs;
  for (const Spec& spec : specs) {
    KV_TRY(job, make_job(spec, args, registry, context));
    jobs.push_back(std::move(job));
  }
  KV_TRY(probe, Probe::make(context, registry));
  KV_TRY(clock, ClockMeter::make(context, registry));
  const Meters meters{std::move(probe), std::move(clock)};
  std::vector<BenchRow> rows;
  Json data = {{"device", to_json(info)},         {"pool_bytes", pool_bytes(info)},        {"repeats", args.repeats},
               {"query_scale", args.query_scale}, {"lengths_on_device", args.has_lengths}, {"results", Json::array()}};
  std::size_t at = 0, count = 0;
  for (const Job& job : jobs) count += job.shapes.size();
  if (args.skip >= count) return fail(Code::usage, fmt::format("--skip {}: there are {} rows", args.skip, count));
  {
    const Interrupts interrupts;
    Progress progress(count - args.skip, cli.shows_progress());
    for (const Job& job : jobs)
      for (std::size_t i = 0; i < job.shapes.size(); ++i) {
        if (Interrupts::is_requested()) break;
        if (at++ < args.skip) continue;
        KV_TRY(row, bench_one(job, i, meters, args, context));
        if (cli.shows_progress())
          print_above(stderr,
                      fmt::format("{} {}: {:.2f} us\n", row.program, cache_text(job.shapes[i]), row.timing.median_us));
        data["results"].push_back(to_json(row));
        rows.push_back(std::move(row));
        progress.show(at - args.skip);
      }
  }
  if (!args.html.empty()) KV_CHECK(write_text(args.html, bench_page(info, args.kv_heads, rows)));
  cli.print(data, fmt::format("{}\n{}", bench_heading(info, args.kv_heads), bench_text(rows)));
  if (at < count) return cli.interrupted(at - args.skip, count - args.skip, {{"--skip", std::to_string(at)}});
  return 0;
}

// Returns a function that times any program of the job's problem over each of the job's caches.
Result<TimeProgram> timer(const Job& job, const BenchArgs& args, const std::shared_ptr<Context>& context) {
  const auto harnesses = std::make_shared<std::vector<KernelHarness>>();
  for (std::size_t i = 0; i < job.shapes.size(); ++i) {
    KV_TRY(harness, filled_harness(job, i, context));
    harnesses->push_back(std::move(harness));
  }
  return [harnesses, &args, &job](const std::shared_ptr<Program>& program) -> Result<std::vector<double>> {
    std::vector<double> us;
    for (std::size_t i = 0; i < harnesses->size(); ++i) {
      KernelHarness& harness = (*harnesses)[i];
      harness.use(program);
      KV_TRY(timed, harness.time(queries(job, i, args.query_scale), call_of(job, i, args), args.repeats));
      us.push_back(timed.timing.median_us);
    }
    return us;
  };
}

// The row of the tuning file for the best shape of a spec.
Result<TuningRow> row_of(const Spec& spec, const Job& job, const TuneResult& tuned, const std::string& device,
                         const std::string& file, const Registry& registry) {
  const Problem& problem = job.ready.problem;
  TuningRow row;
  if (problem.page_tokens > 0)
    return fail(Code::unsupported, "shapes are measured for caches without pages; these take the nearest of them",
                spec.where("cache.layout"), {"layouts planar and rows can be tuned"});
  if (problem.token_heads > 0)
    return fail(Code::unsupported, "shapes of blocks that take all heads of a token are not tuned",
                spec.where("cache.token_heads"), {"without cache.token_heads they can be"});
  row.device = device;
  row.k = spec.k, row.v = spec.v;
  row.head_dim = problem.head_dim, row.rows = problem.query_rows();
  row.layout = problem.layout;
  row.shape = tuned.shapes[tuned.best].shape;
  for (std::size_t i = 0; i < job.shapes.size(); ++i)
    row.measured.push_back(fmt::format("{}: {:.2f} us, untuned {:.2f}", cache_text(job.shapes[i]),
                                       tuned.shapes[tuned.best].us[i], tuned.shapes[0].us[i]));
  KV_TRY(read,
         parse_tuning(tuning_text(problem.arch.name, {row}), file, registry));  // proves that the file can be read
  return read.at(0);
}

Result<int> tune_specs(const Cli& cli, const BenchArgs& args) {
  if (args.out_dir.empty())
    return fail(Code::usage, "--tune needs -o DIR", {}, {"it writes DIR/tuning/ARCH.toml, which --specs DIR finds"});
  KV_TRY(registry, cli.registry());
  KV_TRY(specs, cli.specs(args.specs));
  KV_TRY(context, gpu_context(cli));
  const DeviceInfo& info = context->backend()->info();
  if (info.runs_ptx)
    return fail(
        Code::usage,
        fmt::format("--tune: shapes for {} are measured on such a GPU, not on {} as PTX", info.arch, info.own_arch), {},
        {"leave out KVJIT_AS_PTX and KVJIT_ARCH"});
  const std::filesystem::path folder = std::filesystem::path(args.out_dir) / "tuning",
                              file = folder / (info.arch + ".toml");
  std::vector<TuningRow> rows = registry.tuning(info.arch);
  std::error_code problem;
  if (std::filesystem::exists(file, problem)) {
    KV_TRY(text, read_text(file.string()));
    KV_TRY(old_rows, parse_tuning(text, file.string(), registry));
    rows = old_rows;
  }
  std::filesystem::create_directories(folder, problem);
  if (problem)
    return fail(Code::environment, fmt::format("{}: cannot be made a folder: {}", folder.string(), problem.message()));

  Json data = {{"device", to_json(info)}, {"file", file.string()}, {"results", Json::array()}};
  std::string text;
  KV_TRY(done, for_each_spec(cli, specs, args.skip, [&](const Spec& spec) -> Result<void> {
           KV_TRY(job, make_job(spec, args, registry, context));
           KV_TRY(time, timer(job, args, context));
           KV_TRY(tuned, tune(job.ready.problem, registry, context, time));
           KV_TRY(row, row_of(spec, job, tuned, info.name, file.string(), registry));
           rows = with_row(std::move(rows), row);
           // The file is written after each spec, so that a later failure loses no measurements.
           KV_CHECK(write_text(file.string(), tuning_text(info.arch, rows)));
           data["results"].push_back(to_json(job.ready.problem.id, tuned));
           std::vector<std::string> caches;
           for (const CacheShape& shape : job.shapes) caches.push_back(cache_text(shape));
           const std::string table = tune_table(job.ready.problem.id, caches, tuned);
           if (cli.shows_progress()) print_above(stderr, table);
           text += table;
           return {};
         }));
  cli.print(data, fmt::format("{}\n{}written to {}\n", info.name, text, file.string()));
  return exit_code(cli, specs, args.skip, done);
}

}  // namespace

void add_bench_verb(CLI::App& app, Cli& cli) {
  auto args = std::make_shared<BenchArgs>();
  CLI::App* verb = app.add_subcommand("bench", "time attention over caches of several sizes, on a GPU");
  verb->add_option("SPEC", args->specs, "spec files")->required()->type_name("SPEC.toml");
  CLI::Option* write =
      verb->add_flag("--write", args->is_writing, "time quantize and dequantize of K's format instead, against a copy");
  verb->add_flag("--operations", args->has_operations,
                 "with --write: time rows gathered, copied, requantized to V's format, and rotated by RoPE, too")
      ->needs(write);
  CLI::Option* tune =
      verb->add_flag("--tune", args->is_tuning, "time blocks of other shapes and keep the best")->excludes(write);
  verb->add_option("-o,--output", args->out_dir, "with --tune: write DIR/tuning/ARCH.toml")
      ->needs(tune)
      ->type_name("DIR");
  whole_number(verb->add_option("--tokens", args->tokens, "lengths of the sequences"), "N,M", 1, 1 << 24)
      ->delimiter(',')
      ->allow_extra_args(false)
      ->excludes(write)
      ->default_str(fmt::format("{}", fmt::join(args->tokens, ",")));
  whole_number(verb->add_option("--batch", args->batch, "sequences of a call; each with all --tokens"), "B,C", 1, 65535)
      ->delimiter(',')
      ->allow_extra_args(false)
      ->excludes(write)
      ->default_str("1");
  CLI::Option* queries =
      whole_number(verb->add_option("--queries", args->queries,
                                    "of each sequence, for specs with query_length = \"any\"; each with all --tokens"),
                   "Q,R", 1, 65536)
          ->delimiter(',')
          ->allow_extra_args(false)
          ->excludes(write);
  whole_number(verb->add_option("--ragged", args->ragged,
                                "a batch of sequences with so many queries, for specs with query_length = \"any\""),
               "Q,R", 0, 65536)
      ->delimiter(',')
      ->allow_extra_args(false)
      ->excludes(write)
      ->excludes(queries);
  verb->add_option("--html", args->html, "also write table and charts to one HTML file")
      ->excludes(write)
      ->excludes(tune)
      ->type_name("FILE.html");
  whole_number(verb->add_option("--kv-heads", args->kv_heads, "KV heads of a sequence"), "H", 1, 4096)
      ->capture_default_str();
  decimal_number(verb->add_option("--query-scale", args->query_scale, "queries times X: above 1, fewer tokens decide"),
                 "X", 0, 1e4)
      ->excludes(write)
      ->capture_default_str();
  verb->add_flag("--lengths", args->has_lengths,
                 "tell a call its sequences' lengths in device memory, as captured graphs do")
      ->excludes(write);
  kernel_option(*verb, args->many_rows, "what attends where a program has several kernels")->excludes(write);
  whole_number(verb->add_option("--repeats", args->repeats, "timed graphs of 20 calls; the median counts"), "N", 1,
               10000)
      ->capture_default_str();
  whole_number(verb->add_option("--skip", args->skip,
                                "leave out the first N rows, of --write and --tune the first N specs, to go on after "
                                "Ctrl-C"),
               "N", 0, 1 << 30);
  decimal_number(verb->add_option("--gigabytes", args->gigabytes, "with --write: 1e9 bytes of rows in memory"), "G",
                 0.001, 64)
      ->needs(write)
      ->capture_default_str();
  CLI::Option* runtime = verb->add_flag("--runtime", args->is_runtime,
                                        "what compiling, finding and launching a kernel costs, on any device")
                             ->excludes(write)
                             ->excludes(tune);
  verb->add_option("--probe", args->probe, "of its second process")->needs(runtime)->group("");
  verb->callback([&cli, args] {
    cli.action = [&cli, args]() -> Result<int> {
      if (args->is_runtime) {
        if (args->specs.size() != 1) return fail(Code::usage, "--runtime takes one spec");
        return bench_runtime(cli, {args->specs[0], args->probe});
      }
      return args->is_writing ? bench_write(cli, *args) : args->is_tuning ? tune_specs(cli, *args) : bench(cli, *args);
    };
  });
}

}  // namespace kvjit
