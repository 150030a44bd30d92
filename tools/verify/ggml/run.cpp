// Executes and judges ggml's cases: see run.hpp.
// SPDX-License-Identifier: MIT
#include "tools/verify/ggml/run.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <map>
#include <mutex>

#include "generator/formats/reference_codec.hpp"
#include "generator/program.hpp"
#include "runtime/base/parallel.hpp"
#include "tools/verify/ggml/sample.hpp"
#include "tools/verify/harness.hpp"
#include "tools/verify/measure.hpp"
#include "tools/verify/uniform.hpp"

namespace kvjit {
namespace {

struct Loaded {
  Problem problem;
  std::shared_ptr<Program> program;
};

Result<Loaded> load(const std::string& toml, const Registry& registry, const std::shared_ptr<Context>& context) {
  const DeviceInfo& info = context->backend()->info();
  KV_TRY(specs, parse_specs(toml, "case"));
  KV_TRY(problem, resolve(specs.at(0), registry, info.arch));
  if (info.is_gpu) problem.device = info.name;
  KV_TRY(source, make_program(problem, registry));
  KV_TRY(program, Program::create(context, source));
  return Loaded{problem, program};
}

std::vector<float> uniform_rows(Uniform& random, std::size_t count) {
  std::vector<float> x(count);
  for (float& value : x) value = static_cast<float>(random.between(-1, 1));
  return x;
}

// Fills the mask as init_tensor_kq_mask of ggml's tests does: numbers in [-1, 1], and blocks of 128 tokens by 64
// queries that are zero or minus infinity, about a fifth of all blocks. Unlike ggml's, each mask has at least one such
// block. Each sequence has one mask for all heads.
void add_mask(FeatureInputs& inputs, const GgmlCase& one, Uniform& random) {
  constexpr int kTokens = 128, kQueries = 64;
  const auto tokens = static_cast<std::size_t>(one.tokens), queries = static_cast<std::size_t>(one.batch);
  const std::size_t all = tokens * queries * static_cast<std::size_t>(one.repeats);
  inputs.mask.resize(all);
  for (float& x : inputs.mask) x = float_from_f16(f16_from_float(static_cast<float>(random.between(-1, 1))));
  for (std::size_t left = std::max<std::size_t>(all / 5 / (kTokens * kQueries), 1); left > 0; --left) {
    const int sequence = random.below(one.repeats), query = random.below(one.batch), token = random.below(one.tokens);
    const float value = random.once_in(2) ? -std::numeric_limits<float>::infinity() : 0.f;
    for (int q = query; q < std::min(query + kQueries, one.batch); ++q) {
      const auto row = inputs.mask.begin() + (static_cast<std::ptrdiff_t>(sequence) * one.batch + q) * one.tokens;
      std::fill(row + token, row + std::min(token + kTokens, one.tokens), value);
    }
  }
  inputs.mask_strides = {static_cast<long long>(queries * tokens), 0, one.tokens};
}

Result<FeatureInputs> features_of(const GgmlCase& one, const FeatureSet& set, Uniform& random) {
  FeatureInputs inputs;
  const int heads = one.kv_heads * one.gqa;
  if (one.has_mask) add_mask(inputs, one, random);
  if (set.mask_slopes) {
    KV_TRY(slopes, alibi_slopes(one.max_bias, heads));
    inputs.slopes = std::move(slopes);
  }
  if (one.has_sinks)
    for (int h = 0; h < heads; ++h) inputs.sinks.push_back(static_cast<float>(random.between(-10, 10)));
  inputs.leaves_sinks = set.sinks && !one.has_sinks;
  return inputs;
}

// One side of the cache, [kv_heads][tokens][stored_dim].
struct Cache {
  std::vector<float> x;         // numbers before quantization
  std::vector<double> decoded;  // the stored rows, decoded by the reference codec
};

double nmse(std::span<const float> a, std::span<const double> b) {
  double error = 0, norm = 0;
  for (std::size_t i = 0; i < b.size(); ++i) error += (a[i] - b[i]) * (a[i] - b[i]), norm += b[i] * b[i];
  return norm == 0 ? error : error / norm;
}

// The kernel that attended, by the names in the report.
std::string attending_kernel(const LaunchReport& report) {
  if (report.converted_bytes > 0) return "two-pass";
  if (report.kernels.empty()) return "no kernel";
  return report.kernels[0].substr(0, report.kernels[0].find('.'));
}

// Whether the program has the kernel that the options ask for.
bool has_kernel(const ProgramSource& source, ManyRows many_rows) {
  return many_rows == ManyRows::prefill    ? source.prefill_rows > 0
         : many_rows == ManyRows::two_pass ? second_pass_of(source) != nullptr
                                           : many_rows == ManyRows::decode;
}

// The kernels that a call of `many_rows` may attend by.
std::vector<std::string> may_attend(const ProgramSource& source, ManyRows many_rows, bool is_gpu) {
  if (many_rows == ManyRows::prefill) return {"prefill"};
  if (many_rows == ManyRows::two_pass) return {"two-pass"};
  if (many_rows == ManyRows::decode || !is_gpu) return {"decode"};
  if (source.least_two_pass_queries > 0 && source.query_length >= source.least_two_pass_queries) return {"two-pass"};
  if (source.prefill_choice == PrefillChoice::always) return {"prefill"};
  if (source.prefill_choice == PrefillChoice::if_full) return {"prefill", "decode"};
  return {"decode"};
}

// Compares the launched kernels with those that a call of `many_rows` launches. Returns the difference, or "".
std::string unlike_kernels(const GgmlCase& one, const std::string (&readers)[2], const ProgramSource& source,
                           ManyRows many_rows, bool is_gpu, const LaunchReport& report) {
  const std::string kernel = attending_kernel(report);
  const auto allowed = may_attend(source, many_rows, is_gpu);
  if (std::find(allowed.begin(), allowed.end(), kernel) == allowed.end())
    return fmt::format("{} attended ({}), not {}", kernel, report.kernels, fmt::join(allowed, " or "));
  if (kernel == "two-pass") {  // its kernels have names of their own
    const auto attends = [](const std::string& name) { return name.find(".context_chunks.") != std::string::npos; };
    return std::count_if(report.kernels.begin(), report.kernels.end(), attends) == 1
               ? ""
               : fmt::format("no kernel of {} attends to chunks", report.kernels);
  }
  const std::string dims = one.stored_dim(0) == one.stored_dim(1)
                               ? std::to_string(one.stored_dim(0))
                               : fmt::format("{}x{}", one.stored_dim(0), one.stored_dim(1));
  const std::string name =
      fmt::format("{}.{}-{}.d{}.g{}.q{}.rows.", kernel, readers[0], readers[1], dims, one.gqa, one.batch);
  const std::size_t least = kernel == "prefill" || source.fuses_merge ? 1 : 2,
                    most = kernel == "prefill" ? 1 : 1 + source.kernels.count(kvjit::Role::merge);
  if (report.kernels.size() < least || report.kernels.size() > most || !report.kernels[0].starts_with(name))
    return fmt::format("it ran {}, not {}...", report.kernels, name);
  return "";
}

// Compares the launch report with the case: features, formats, bytes read and kernels. Returns the first difference,
// or "".
std::string unlike_request(const GgmlCase& one, const GgmlCase& served, const Loaded& loaded, const Registry& registry,
                           ManyRows many_rows, bool is_gpu, const LaunchReport& report) {
  std::vector<std::string> features;
  if (one.softcap > 0) features.push_back(fmt::format("softcap {}", one.softcap));
  if (one.has_mask) features.emplace_back("mask");
  if (served.max_bias > 0) features.emplace_back("mask_slopes");
  if (one.has_sinks) features.emplace_back("sinks");
  if (report.features != features) return fmt::format("it had the features {}, not {}", report.features, features);
  std::string readers[2];
  long long row_bytes = 0;
  for (const int side : {0, 1}) {
    const auto format = registry.format_for(side == 0 ? one.k : one.v, one.stored_dim(side), {});
    if (!format) return render(format.error());
    readers[side] = format->name;
    row_bytes += format->head_bytes(one.stored_dim(side));
  }
  if (report.k_reader != readers[0] || report.v_reader != readers[1])
    return fmt::format("it read {} and {}, not {} and {}", report.k_reader, report.v_reader, readers[0], readers[1]);
  const long long bytes = row_bytes * one.kv_heads * one.tokens * one.repeats;
  if (report.cache_bytes != bytes)
    return fmt::format("it read {} bytes of the cache, not {}", report.cache_bytes, bytes);
  return unlike_kernels(one, readers, loaded.program->source(), many_rows, is_gpu, report);
}

Result<void> run_case(const GgmlCase& one, const GgmlCase& served, const Loaded& loaded, const Registry& registry,
                      const std::shared_ptr<Context>& context, std::uint64_t seed, ManyRows asked_for,
                      GgmlOutcome& outcome) {
  const Problem& problem = loaded.problem;
  Uniform random(seed);
  CacheShape shape{one.repeats, one.kv_heads, one.tokens, 1, PagePlaces::own, {}};
  shape.rows = {!one.is_permuted, 0, 0, one.is_dense ? 1 : 2, one.repeats > 1, one.v_is_view};
  KV_TRY(harness, KernelHarness::make(context, loaded.program, problem, shape));
  const auto rows = static_cast<std::size_t>(one.kv_heads) * static_cast<std::size_t>(one.tokens);
  const auto dims = [&](int side) { return static_cast<std::size_t>(one.stored_dim(side)); };
  Cache caches[2];
  for (const int side : {0, 1}) {
    Cache& cache = caches[side];
    if (side == 1 && one.v_is_view) {
      for (std::size_t row = 0; row < rows; ++row) {
        const auto front = static_cast<std::ptrdiff_t>(row * dims(0)),
                   end = front + static_cast<std::ptrdiff_t>(dims(1));
        cache.x.insert(cache.x.end(), caches[0].x.begin() + front, caches[0].x.begin() + end);
        cache.decoded.insert(cache.decoded.end(), caches[0].decoded.begin() + front, caches[0].decoded.begin() + end);
      }
      continue;
    }
    const Format& format = side == 0 ? problem.k : problem.v;
    cache.x = uniform_rows(random, rows * dims(side));
    const auto stored = encode_rows(format, cache.x, one.stored_dim(side));
    cache.decoded = decode_rows(format, stored, one.stored_dim(side));
    KV_CHECK(harness.set_rows(side, stored));
  }
  const std::size_t head_rows = static_cast<std::size_t>(one.gqa * one.batch),
                    q_rows = static_cast<std::size_t>(one.kv_heads) * head_rows;
  const auto q = uniform_rows(random, static_cast<std::size_t>(one.repeats) * q_rows * dims(0));
  KV_TRY(inputs, features_of(one, problem.features, random));
  harness.set_features(inputs);

  KernelHarness::Call call;
  call.scale = 1 / std::sqrt(static_cast<float>(one.head_dim_k));
  call.q.by_query = one.is_permuted;
  call.out.by_query = true;
  call.many_rows = has_kernel(loaded.program->source(), asked_for) ? asked_for : ManyRows::chosen;
  KV_TRY(attended, harness.attend(q, call));
  outcome.kernel = attending_kernel(attended.report);
  const std::string unlike =
      unlike_request(one, served, loaded, registry, call.many_rows, context->backend()->info().is_gpu, attended.report);
  if (!unlike.empty()) return fail(Code::differs, "the launch is not the one requested: " + unlike);

  const auto widened_q = widened(q);
  std::vector<double> exact;
  for (int s = 0; s < one.repeats; ++s) {
    const ScoreRule rule(problem.features, false, inputs, s, one.batch, one.tokens);
    ExactShape attention{one.kv_heads, one.gqa,           one.batch, one.stored_dim(0), one.tokens, 0,
                         false,        one.stored_dim(1), &rule,     call.scale};
    const auto mine = std::span(widened_q).subspan(static_cast<std::size_t>(s) * q_rows * dims(0), q_rows * dims(0));
    const auto exact_sequence = exact_attention(attention, mine, caches[0].decoded, caches[1].decoded);
    exact.insert(exact.end(), exact_sequence.begin(), exact_sequence.end());
    if (s > 0) continue;
    attention.kv_heads = attention.q_heads_per_kv = 1;
    const auto tokens = static_cast<std::size_t>(one.tokens), queries = static_cast<std::size_t>(one.batch);
    const auto unquantized = exact_attention(attention, mine.first(queries * dims(0)),
                                             widened(std::span(caches[0].x).first(tokens * dims(0))),
                                             widened(std::span(caches[1].x).first(tokens * dims(1))));
    outcome.quantized_error = nmse(attended.out, unquantized);
  }
  outcome.error = nmse(attended.out, exact);
  if (outcome.error <= kMaxGgmlError) return {};
  return fail(Code::differs, fmt::format("NMSE {:.2e}, above {:.0e}", outcome.error, kMaxGgmlError));
}

}  // namespace

std::vector<GgmlOutcome> run_ggml(const std::vector<GgmlCase>& cases, const Registry& registry,
                                  const std::shared_ptr<Context>& context, const GgmlOptions& options) {
  struct Group {
    std::string toml;                // the spec of the program
    std::vector<std::size_t> cases;  // indices of the cases that it serves
    double work = 0;                 // multiplications of these cases
  };
  const auto served = [&](const GgmlCase& one) { return options.shares_programs ? one.served_by() : one; };
  std::map<std::string, Group> by_program;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const std::string toml = served(cases[i]).toml();
    Group& group = by_program[toml];
    group.toml = toml;
    group.cases.push_back(i);
    group.work += ggml_work(cases[i]);
  }
  std::vector<Group> groups;
  for (auto& [toml, group] : by_program) groups.push_back(std::move(group));
  std::stable_sort(groups.begin(), groups.end(), [](const Group& a, const Group& b) { return a.work > b.work; });

  std::vector<GgmlOutcome> outcomes(cases.size());
  std::atomic<std::size_t> done = 0;
  in_parallel(groups.size(), options.threads, [&](std::size_t g) {
    const auto is_stopped = [&options] { return options.is_stopped && options.is_stopped(); };
    if (is_stopped()) return;
    const auto loaded = load(groups[g].toml, registry, context);
    for (const std::size_t i : groups[g].cases) {
      if (is_stopped()) return;
      GgmlOutcome& outcome = outcomes[i];
      const Result<void> ran =
          !loaded ? Result<void>(tl::unexpected(loaded.error()))
                  : run_case(cases[i], served(cases[i]), *loaded, registry, context, i + 1, options.many_rows, outcome);
      if (loaded) outcome.program = loaded->problem.id;
      outcome.verdict = ran ? GgmlVerdict::passed
                        : ran.error().code == Code::unsupported || ran.error().code == Code::bad_input
                            ? GgmlVerdict::refused
                            : GgmlVerdict::failed;
      if (!ran && is_stopped()) return;  // what stops the run may have ended the compiler
      outcome.is_done = true;
      if (!ran) outcome.reason = ran.error().message;
      const std::size_t count = ++done;
      if (options.progress) options.progress(count);
    }
  });
  return outcomes;
}

}  // namespace kvjit
