// Executes and judges a random spec: see fuzz_run.hpp.
// SPDX-License-Identifier: MIT
#include "tools/verify/fuzz_run.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include <utility>

#include "generator/program.hpp"
#include "tools/verify/inputs/unseen.hpp"
#include "tools/verify/judge.hpp"
#include "tools/verify/measure.hpp"

namespace kvjit {
namespace {

struct Ran {
  Problem problem;
  std::shared_ptr<Program> program;
};

Result<Ran> load(const FuzzCase& one, const Registry& registry, const std::shared_ptr<Context>& context) {
  const DeviceInfo& info = context->backend()->info();
  KV_TRY(specs, parse_specs(one.toml, fmt::format("seed {}", one.seed)));
  const Spec& spec = specs.at(0);
  KV_TRY(problem, resolve(spec, registry, spec.archs.empty() ? info.arch : spec.archs[0]));
  if (info.is_gpu) problem.device = info.name;
  KV_TRY(source, make_program(problem, registry));
  KV_TRY(program, Program::create(context, source));
  return Ran{problem, program};
}

tl::unexpected<Error> differs(std::string what) { return fail(Code::differs, std::move(what)); }

// One side of the cache.
struct Side {
  std::vector<float> x;              // numbers before quantization
  std::vector<std::uint8_t> stored;  // rows as whole blocks
  std::vector<double> decoded;       // the stored rows, decoded by the reference codec
};

// The row of a token among all stored rows.
std::size_t row_of(const CacheShape& shape, std::size_t sequence, int head, int token) {
  return (sequence * static_cast<std::size_t>(shape.kv_heads) + static_cast<std::size_t>(head)) *
             static_cast<std::size_t>(shape.tokens) +
         static_cast<std::size_t>(token);
}

// Flags of the stored rows of the tokens that a call with append stores.
RowFlags new_rows(const FuzzCase& one, const Problem& problem) {
  RowFlags flags(static_cast<std::size_t>(one.shape.sequences * one.shape.kv_heads * one.shape.tokens));
  const std::vector<int> lengths = one.lengths();
  for (std::size_t s = 0; s < lengths.size(); ++s)
    for (int head = 0; head < one.shape.kv_heads; ++head)
      for (int t = std::max(lengths[s] - problem.query_length, 0); t < lengths[s]; ++t)
        flags[row_of(one.shape, s, head, t)] = true;
  return flags;
}

void overwrite(std::vector<std::uint8_t>& rows, std::size_t at, std::span<const std::uint8_t> row) {
  std::copy(row.begin(), row.end(), rows.begin() + static_cast<std::ptrdiff_t>(at * row.size()));
}

bool takes_values_from_keys(const FuzzCase& one, const Problem& problem) {
  return problem.values_in_keys || one.shape.rows.has_values_in_keys;
}

// Fills the cache with seeded numbers. halves: of sides whose numbers the call makes halves of.
Result<void> fill(KernelHarness& harness, const FuzzCase& one, const Problem& problem, const bool (&halves)[2],
                  Side (&sides)[2], int& key_exponent) {
  const CacheShape& shape = one.shape;
  const auto rows = static_cast<std::size_t>(shape.rows.shares_sequences ? 1 : shape.sequences) *
                    static_cast<std::size_t>(shape.kv_heads) * static_cast<std::size_t>(shape.tokens);
  KV_CHECK(harness.vary_head_scales());
  const bool has_values_in_keys = takes_values_from_keys(one, problem);
  for (const int s : {0, 1}) {
    Side& side = sides[s];
    const int dim = problem.dim(s);
    const Format& format = s == 0 ? problem.k : problem.v;
    const InputBounds bounds{problem.q_type, problem.out_type, problem.append ? one.new_type : Element::f32,
                             has_values_in_keys, halves[s] || (halves[1] && has_values_in_keys)};
    const int exponent = s == 1 && has_values_in_keys ? key_exponent : exponent_of(one.inputs, s, format, dim, bounds);
    if (s == 0) key_exponent = exponent;
    harness.set_tensor_scale(
        s, format.has_tensor_scale() ? std::ldexp(one.tensor_scale[s], exponent) : one.tensor_scale[s]);
    const RowScales scales = harness.row_scales(s);
    if (s == 1 && has_values_in_keys) {
      const auto k_dim = static_cast<std::size_t>(problem.head_dim), v_dim = static_cast<std::size_t>(dim);
      for (std::size_t row = 0; row < rows; ++row)
        for (std::size_t i = 0; i < v_dim; ++i) side.decoded.push_back(sides[0].decoded[row * k_dim + i]);
      continue;
    }
    side.x = draw_rows(one.inputs, s, format, dim, rows, one.seed * 2 + std::uint64_t(s), exponent, bounds);
    if (problem.append) side.x = rounded_to(one.new_type, side.x);  // append receives rows of new_type
    const auto encoded = encode_rows(format, side.x, dim, scales);
    side.stored = encoded;
    if (one.writes_on_device) {
      KV_CHECK(harness.quantize(s, side.x));
      KV_TRY(written, harness.rows(s));
      side.stored = written;
      const ByteAgreement bytes = compare_rows(format, written, encoded);
      const long long off = bytes.code_differs + bytes.scale_differs;
      // float32 sums are off by about 1e-6, which rounds one scale in 500 and fewer codes the other way. Rotated rows
      // of ties have ties, too: they have more such codes.
      const double codes = one.inputs.numbers[s] == Numbers::ties ? 1e-2 : 1e-3;
      const double allowed =
          is_byte_exact(format) ? 0 : codes * double(bytes.code_bytes) + 1e-2 * double(bytes.scale_bytes) + 2;
      if (double(off) > allowed)
        return differs(fmt::format("quantize of {}: {} bytes differ from the reference codec", format.name, off));
    } else {
      KV_CHECK(harness.set_rows(s, encoded));
    }
    side.decoded = decode_rows(format, side.stored, dim, scales);
    if (!std::all_of(side.decoded.begin(), side.decoded.end(), [](double x) { return std::isfinite(x); }))
      return fail(Code::internal, fmt::format("the inputs of side {} have no finite stored numbers", s));
    if (problem.append)
      harness.set_new_tokens(s, new_token_rows(side.x, shape, one.lengths(), problem.query_length, dim), one.new_type);
  }
  return {};
}

// Overwrites what no query sees, and the rows of tokens that few see. Rows that the call appends become 0xFF, so that
// right answers prove that the call stored them; sides get the rows that must be there after the call.
Result<void> overwrite_unseen(KernelHarness& harness, const FuzzCase& one, const Problem& problem,
                              const UnseenTokens& unseen, Side (&sides)[2]) {
  const InputWish& wish = one.inputs;
  const bool is_hidden = wish.classes.has(InputClass::hidden), is_partly = wish.classes.has(InputClass::partly_hidden),
             is_freed = wish.classes.has(InputClass::freed_pages);
  const RowFlags appended =
      problem.append && !one.call.is_reference ? new_rows(one, problem) : RowFlags(unseen.hidden.size());
  const bool has_values_in_keys = takes_values_from_keys(one, problem);
  for (const int s : {0, 1}) {
    Side& side = sides[s];
    if (side.stored.empty() || (s == 1 && has_values_in_keys)) continue;
    const Format& format = s == 0 ? problem.k : problem.v;
    const auto poison = unseen_row(format, problem.dim(s), wish.unseen),
               nan = unseen_row(format, problem.dim(s), Unseen::nan);
    for (std::size_t row = 0; is_hidden && row < unseen.hidden.size(); ++row)
      if (unseen.hidden[row] && !appended[row]) overwrite(side.stored, row, poison);
    for (const UnseenTokens::Part& part : unseen.partly)
      if (const std::size_t row = row_of(one.shape, static_cast<std::size_t>(part.sequence), part.kv_head, part.token);
          is_partly && !appended[row])
        overwrite(side.stored, row, nan);
    if (!is_hidden && !is_partly && !problem.append) continue;
    std::vector<std::uint8_t> rows = side.stored;
    const std::vector<std::uint8_t> ones(nan.size(), 0xFF);
    for (std::size_t row = 0; row < appended.size(); ++row)
      if (appended[row]) overwrite(rows, row, ones);
    KV_CHECK(harness.set_rows(s, rows));
  }
  const std::vector<int> lengths = one.lengths();
  if (is_hidden && wish.unseen == Unseen::unmapped) {
    RowFlags unmapped = unmapped_rows(one.shape, lengths, unseen);
    for (std::size_t row = 0; row < appended.size(); ++row) unmapped[row] = unmapped[row] && !appended[row];
    for (const int s : {0, 1}) harness.set_unmapped(s, unmapped);
  }
  if (!is_freed || problem.page_tokens == 0) return {};
  const auto page_tokens = static_cast<long long>(problem.page_tokens);
  const auto each = static_cast<std::size_t>((one.shape.tokens + page_tokens - 1) / page_tokens);
  std::vector<bool> freed(static_cast<std::size_t>(one.shape.sequences) * each, true);
  for (std::size_t s = 0; s < lengths.size(); ++s)
    for (int head = 0; head < one.shape.kv_heads; ++head)
      for (int t = 0; t < lengths[s]; ++t)
        if (const std::size_t row = row_of(one.shape, s, head, t); !unseen.outside[row] || appended[row])
          freed[s * each + static_cast<std::size_t>(t / page_tokens)] = false;
  for (const int s : {0, 1})
    harness.free_pages(s, freed, one.seed + (has_values_in_keys ? 0 : static_cast<std::uint64_t>(s)));
  return {};
}

// Compares the launch report with the request: features, formats, kernel and blocks.
Result<void> check_report(const FuzzCase& one, const Ran& ran, ManyRows many_rows, const LaunchReport& report) {
  const Problem& problem = ran.problem;
  std::vector<std::string> features = problem.features.names();
  if (problem.causal) features.insert(features.begin(), "causal");
  if (one.leaves_sinks) std::erase(features, "sinks");
  if (report.features != features)
    return differs(fmt::format("the launch had the features {}, not {}", report.features, features));
  if (report.k_reader != problem.k.name || report.v_reader != problem.v.name ||
      (report.converted_bytes > 0) != (many_rows == ManyRows::two_pass))
    return differs(fmt::format("the launch read {} and {} and converted {} bytes", report.k_reader, report.v_reader,
                               report.converted_bytes));
  const Role role = one.call.is_reference           ? Role::reference
                    : many_rows == ManyRows::decode ? Role::decode
                                                    : Role::prefill;
  // Run-time query lengths have a kernel of the role for each range of queries.
  const ProgramSource& source =
      many_rows == ManyRows::two_pass ? *second_pass_of(ran.program->source()) : ran.program->source();
  const std::string kernel = problem.varlen ? fmt::format("{}.", to_string(role)) : source.kernels.at(role).name;
  const auto has_role = [&](const std::string& name) { return name.starts_with(kernel); };
  if (std::none_of(report.kernels.begin(), report.kernels.end(), has_role))
    return differs(fmt::format("the launch ran {}, not {}", report.kernels, kernel));
  if (one.call.blocks > 0 && report.blocks > one.call.blocks)
    return differs(fmt::format("{} blocks, at most {} requested", report.blocks, one.call.blocks));
  return {};
}

// The elements of sequence s in an array of `sequences` equal slices. An array for one sequence serves all sequences.
template <class T>
std::span<const T> slice_of(const std::vector<T>& all, int s, int sequences) {
  const std::size_t each = all.size() / static_cast<std::size_t>(sequences);
  return std::span<const T>(all).subspan(sequences > 1 ? static_cast<std::size_t>(s) * each : 0, each);
}

// Compares output and lse of each query row with attention in double precision. unjudged: rows whose numbers say
// nothing.
Result<void> check_numbers(const FuzzCase& one, const Problem& problem, const KernelHarness& harness,
                           const Side (&sides)[2], const std::vector<float>& q, const std::vector<bool>& unjudged,
                           const KernelHarness::Outcome& outcome, FuzzOutcome& judged) {
  const std::vector<int> lengths = one.lengths(), counts = one.query_counts(problem.query_length);
  const auto heads = static_cast<std::size_t>(one.shape.kv_heads * problem.q_heads_per_kv);
  const int sequences = one.shape.sequences, stored = one.shape.rows.shares_sequences ? 1 : sequences;
  const auto queries = widened(q);
  const double limit = kernel_limit(problem.out_type);
  const auto width = static_cast<std::size_t>(problem.v_dim());
  std::size_t next_row = 0;  // of the sequence, among the rows of all
  int first_query = 0;
  for (int s = 0; s < sequences; ++s) {
    const int tokens = lengths[static_cast<std::size_t>(s)], count = counts[static_cast<std::size_t>(s)];
    const ScoreRule rule(problem.features, problem.causal, harness.features(), s, count, tokens,
                         one.call.query_counts.empty() ? 0 : first_query);
    const std::size_t rows = heads * static_cast<std::size_t>(count), at = std::exchange(next_row, next_row + rows);
    first_query += count;
    if (count == 0) continue;
    const auto rows_of = [&]<class T>(const std::vector<T>& all, int dim) {
      const auto each = static_cast<std::size_t>(dim);
      return std::span<const T>(all).subspan(at * each, rows * each);
    };
    const ExactShape shape{
        one.shape.kv_heads, problem.q_heads_per_kv, count, problem.head_dim, tokens, one.shape.tokens,
        problem.causal,     problem.v_dim(),        &rule};
    const auto mine = rows_of(queries, problem.head_dim), keys = slice_of(sides[0].decoded, s, stored),
               values = slice_of(sides[1].decoded, s, stored);
    std::vector<double> lse;
    const auto exact = exact_attention(shape, mine, keys, values, &lse);
    const auto out = rows_of(outcome.out, problem.v_dim());
    const std::vector<double> norms = row_norms(exact, width), errors = row_errors(out, exact, width);
    double largest_value = 0;
    for (const double x : values)
      if (std::isfinite(x)) largest_value = std::max(largest_value, std::abs(x));
    const double least = least_error(problem.out_type, largest_value) * std::sqrt(static_cast<double>(width));
    std::vector<double> limits(rows);
    std::vector<bool> is_far(rows);  // rows above the limit
    for (std::size_t row = 0; row < rows; ++row) {
      limits[row] = row_limit(problem.out_type, norms[row], std::span(exact).subspan(row * width, width)) + least;
      is_far[row] = !unjudged[at + row] && !(errors[row] <= limits[row]);
    }
    const bool has_far = std::find(is_far.begin(), is_far.end(), true) != is_far.end();
    const auto allowed = has_far && !one.call.is_reference
                             ? row_allowances(shape, problem.sparse_v, mine, keys, values, exact, is_far)
                             : std::vector<RowAllowance>(rows);
    double error_of_all = 0, norm_of_all = 0, sparse_of_all = 0;
    for (std::size_t row = 0; row < rows; ++row) {
      if (unjudged[at + row]) continue;
      const double error = errors[row], most = limits[row] + allowed[row].sparse + allowed[row].rounding;
      if (!is_within(error, most))
        return differs(
            fmt::format("sequence {} of {} tokens, query head {}, query {}: error {:.2e} of {:.2e}, above "
                        "{:.2e}, of which {:.2e} by rounding",
                        s, tokens, row / static_cast<std::size_t>(count), row % static_cast<std::size_t>(count), error,
                        norms[row], most, allowed[row].rounding));
      error_of_all = std::hypot(error_of_all, std::max(error - least, 0.));
      norm_of_all = std::hypot(norm_of_all, norms[row]);
      sparse_of_all = std::hypot(sparse_of_all, allowed[row].sparse);
    }
    // The error that is shown is that of all rows together, which one short row does not decide.
    const double shown = std::max(error_of_all - sparse_of_all, 0.) / (norm_of_all > 0 ? norm_of_all : 1);
    judged.error = std::max(judged.error, shown);
    judged.is_by_rounding |= shown > limit;
    if (outcome.lse.empty() == problem.features.lse) return differs("lse is there unasked, or is not");
    if (!problem.features.lse) continue;
    const auto scores = largest_scores(shape, mine, keys);
    const auto lse_out = rows_of(outcome.lse, 1);
    for (std::size_t row = 0; row < rows; ++row) {
      if (unjudged[at + row]) continue;
      const double error =
          lse_error(lse_out.subspan(row, 1), std::span(lse).subspan(row, 1), std::span(scores).subspan(row, 1));
      if (!is_within(error, kMaxKernelError))
        return differs(fmt::format("sequence {} of {} tokens, query head {}, query {}: lse {} for {}, error {:.2e}", s,
                                   tokens, row / static_cast<std::size_t>(count), row % static_cast<std::size_t>(count),
                                   lse_out[row], lse[row], error));
    }
  }
  return {};
}

}  // namespace

std::vector<ManyRows> ways_of(const ProgramSource& source, bool is_ragged) {
  std::vector<ManyRows> ways{ManyRows::decode};
  if (source.prefill_rows > 0) ways.push_back(ManyRows::prefill);
  if (second_pass_of(source) && !is_ragged) ways.push_back(ManyRows::two_pass);
  return ways;
}

Result<void> run_case(const FuzzCase& one, const Problem& problem, const std::shared_ptr<Program>& program,
                      const std::shared_ptr<Context>& context, FuzzOutcome& judged) {
  KV_TRY(harness, KernelHarness::make(context, program, problem, one.shape));
  Side sides[2];
  int key_exponent = 0;
  const bool is_ragged = !one.call.query_counts.empty();
  const std::vector<ManyRows> ways = ways_of(program->source(), is_ragged);
  const ManyRows many_rows = one.call.is_reference ? ManyRows::decode : ways[one.seed % ways.size()];
  // Prefill in two passes: rows without powers of two have the range of fp16.
  const ProgramSource& source = program->source();
  const ProgramSource& attending = source.buckets.empty() ? source : source.buckets.back();
  const bool in_two = many_rows == ManyRows::two_pass,
             halves[2] = {in_two && !attending.k.fits_rows, in_two && !attending.v.fits_rows};
  KV_CHECK(fill(harness, one, problem, halves, sides, key_exponent));
  const int heads = one.shape.kv_heads * problem.q_heads_per_kv;
  const std::vector<int> counts = one.query_counts(problem.query_length);
  const int all = std::accumulate(counts.begin(), counts.end(), 0);
  FeatureInputs inputs = random_features(problem.features,
                                         {is_ragged ? 1 : one.shape.sequences, heads, is_ragged ? all : counts[0],
                                          int(one.shape.tokens), is_ragged ? one.shape.sequences : 0},
                                         one.seed, one.variant);
  inputs.leaves_sinks = one.leaves_sinks;
  draw_sinks(one.inputs, one.seed, inputs);
  harness.set_features(inputs);
  std::vector<bool> unjudged;
  const auto q = draw_queries(one.inputs, problem.head_dim, static_cast<std::size_t>(all * heads), one.seed + 7,
                              key_exponent, problem.q_type, unjudged);
  const UnseenTokens unseen = unseen_tokens(problem, one.shape, one.lengths(), counts, is_ragged, inputs);
  KV_CHECK(overwrite_unseen(harness, one, problem, unseen, sides));
  for (std::size_t row = 0; row < unjudged.size(); ++row)
    if (one.inputs.classes.has(InputClass::partly_hidden) && unseen.sees_part[row]) unjudged[row] = true;
  KernelHarness::Call call = one.call;
  call.many_rows = many_rows;
  KV_TRY(outcome, harness.attend(q, call));
  KV_CHECK(check_report(one, {problem, program}, call.many_rows, outcome.report));
  KV_CHECK(check_numbers(one, problem, harness, sides, q, unjudged, outcome, judged));
  for (const int s : {0, 1}) {
    if (!problem.append) break;
    KV_TRY(rows, harness.rows(s));
    const Format& format = s == 0 ? problem.k : problem.v;
    const ByteAgreement bytes = compare_rows(format, rows, sides[s].stored);
    const long long appended = (bytes.code_bytes + bytes.scale_bytes) * problem.query_length / one.shape.tokens;
    if (bytes.code_differs + bytes.scale_differs > allowed_append_bytes(format, appended))
      return differs(fmt::format("append: {} bytes of side {} differ from those of quantize",
                                 bytes.code_differs + bytes.scale_differs, s));
  }
  return {};
}

FuzzOutcome run_fuzz(const FuzzCase& one, const Registry& registry, const std::shared_ptr<Context>& context) {
  FuzzOutcome outcome;
  const auto ran = load(one, registry, context);
  if (!ran) {
    outcome.reason = ran.error().message;
    outcome.verdict = one.expects(outcome.reason) ? FuzzVerdict::refused : FuzzVerdict::failed;
    for (const std::string& note : ran.error().notes) outcome.reason += "; " + note;
    return outcome;
  }
  outcome.program = ran->problem.id;
  if (!one.refusals.empty()) {
    outcome.reason = fmt::format("taken, where it should be refused: {}", fmt::join(one.refusals, " | "));
    return outcome;
  }
  const auto done = run_case(one, ran->problem, ran->program, context, outcome);
  outcome.verdict = done ? FuzzVerdict::passed : FuzzVerdict::failed;
  if (done) return outcome;
  outcome.reason = done.error().message;
  // A GPU that has failed answers no other call.
  if (context->backend()->info().is_gpu && done.error().code != Code::differs) return outcome;
  const auto fails_with = [&](InputClasses classes) {
    FuzzCase other = one;
    other.inputs = one.inputs.only(classes);
    FuzzOutcome ignored;
    return !run_case(other, ran->problem, ran->program, context, ignored);
  };
  if (fails_with({})) outcome.guilty.emplace_back("ordinary");
  for (const InputClass part : one.inputs.classes.list())
    if (fails_with({part})) outcome.guilty.emplace_back(to_string(part));
  return outcome;
}

}  // namespace kvjit
