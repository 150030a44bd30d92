// make_program: walks the list of families (kernels/families.cpp), each of which plans and emits its kernels. explain
// prints the reasons.
// SPDX-License-Identifier: MIT
#include "generator/program.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "generator/kernels/codec/emit.hpp"
#include "generator/kernels/families.hpp"
#include "generator/kernels/prefill/plan.hpp"

namespace kvjit {
namespace {

SideInfo side_info(const Format& f, int head_dim) {
  SideInfo info;
  const long long blocks = f.stored_dim(head_dim) / f.block;
  info.format = f.name;
  info.is_transformed = f.is_transformed();
  info.has_tensor_scale = f.has_tensor_scale();
  info.has_head_scales = f.has_head_scales();
  info.swizzles_scales = f.swizzles_scales;
  info.rotated_dim = f.rotated_dim(head_dim), info.stored_dim = f.stored_dim(head_dim);
  info.row_bytes = blocks * f.block_bytes;
  info.code_row_bytes = blocks * f.code_bytes;
  info.scale_row_bytes = blocks * f.scale_bytes;
  info.bits_per_value = f.bits_per_value();
  return info;
}

}  // namespace

const char* to_string(Role role) {
  constexpr const char* kNames[] = {"rotate_q",
                                    "decode",
                                    "prefill",
                                    "merge",
                                    "rotate_out",
                                    "reference",
                                    "quantize_k",
                                    "quantize_v",
                                    "dequantize_k",
                                    "dequantize_v",
                                    "quantize_bulk_k_f16",
                                    "quantize_bulk_k_bf16",
                                    "quantize_bulk_k_f32",
                                    "quantize_bulk_v_f16",
                                    "quantize_bulk_v_bf16",
                                    "quantize_bulk_v_f32",
                                    "dequantize_bulk_k_f16",
                                    "dequantize_bulk_k_bf16",
                                    "dequantize_bulk_k_f32",
                                    "dequantize_bulk_v_f16",
                                    "dequantize_bulk_v_bf16",
                                    "dequantize_bulk_v_f32",
                                    "merge_contexts",
                                    "mask_ranges",
                                    "check",
                                    "dequantize_chunk_k",
                                    "dequantize_chunk_v",
                                    "append_k",
                                    "append_v"};
  return kNames[int(role)];
}

namespace {

// Begins a program with the sizes of the call and of its cache, which every family and the runtime read.
Result<ProgramSource> begin_program(const Problem& problem) {
  ProgramSource program;
  program.id = problem.id;
  program.title = problem.title;
  program.arch = problem.arch.name;
  program.timing = problem.arch.timing;
  static_cast<AttentionShape&>(program) = problem;
  program.head_dim_v = problem.v_dim();
  program.append = false;  // until a family sets it because its kernel stores the new tokens
  program.rows = problem.query_rows();
  program.k = side_info(problem.k, problem.head_dim);
  program.v = side_info(problem.v, problem.v_dim());
  KV_CHECK(check_codec(problem.k, problem.head_dim));
  KV_CHECK(check_codec(problem.v, problem.v_dim()));
  return program;
}

// One decision for each feature, with what it costs.
void explain_features(const Problem& problem, ProgramSource& program) {
  const FeatureSet& set = problem.features;
  if (!set.any()) return;
  if (set.has_window())
    program.decisions.push_back(
        {"feature", fmt::format("window [{}, {}]", set.window_left, set.window_right), kRangeCost, {}});
  if (problem.causal) program.decisions.push_back({"feature", "causal", kRangeCost, {}});
  if (set.position_offset) program.decisions.push_back({"feature", "position_offset", "costs nothing a score", {}});
  if (set.token_ranges)
    program.decisions.push_back(
        {"feature", "token_ranges", "costs a load of two numbers a block; tiles outside of a range are not read", {}});
  for (const FeatureUse& use : feature_uses(set, problem.query_length))
    program.decisions.push_back({"feature", use.name, use.cost, {}});
}

// Query rows of a KV head that the buckets of decode serve, at most. The first is for a single query, which decode
// steps have. Up to 64 rows a block takes at once: 1, 2, 4 or 8 columns of eight. Beyond, it takes chunks of them, and
// passes over those that a sequence does not have.
constexpr long long kBucketRows[] = {1, 8, 16, 32, 64, 512, 4096, 32768, 262144, 2097152, 16777216};

// The problem of a bucket, for up to so many queries.
Problem bucket_problem(const Problem& problem, long long queries) {
  Problem bucket = problem;
  bucket.query_length = static_cast<int>(queries);
  bucket.id = problem_id(bucket);
  return bucket;
}

// Most queries of each bucket of decode, ascending. Where calls take prefill from some number of queries on, decode
// ends there.
std::vector<int> decode_buckets(const Problem& problem, PrefillChoice choice, int least_prefill_queries) {
  std::vector<int> lengths;
  int before = 0;
  for (const long long rows : kBucketRows) {
    if (!lengths.empty() && choice == PrefillChoice::always && before + 1 >= least_prefill_queries) break;
    const auto queries =
        static_cast<int>(std::clamp(rows / problem.q_heads_per_kv, 1ll, static_cast<long long>(problem.query_length)));
    if (queries != before) lengths.push_back(queries);
    before = queries;
  }
  return lengths;
}

// Run-time query lengths: a program for each range of queries (ProgramSource::buckets).
Result<void> make_buckets(const FamilyInput& input, ProgramSource& program) {
  const Problem& problem = input.problem;
  const auto add = [&](const Problem& of, std::initializer_list<decltype(&make_decode)> makers) -> Result<void> {
    KV_TRY(bucket, begin_program(of));
    for (const auto make : makers) KV_CHECK(make({of, input.registry, input.shape}, bucket));
    program.buckets.push_back(std::move(bucket));
    return {};
  };
  // Prefill comes last, but it says from which number of queries on calls take it.
  if (problem.query_rows() > 64) KV_CHECK(add(problem, {make_prefill, make_rotations}));
  std::vector<ProgramSource> prefill = std::exchange(program.buckets, {});
  const bool has_prefill = !prefill.empty() && prefill[0].kernels.count(Role::prefill) != 0,
             has_two_passes = !prefill.empty() && !prefill[0].second_pass.empty();
  if (has_prefill) {
    program.prefill_rows = prefill[0].prefill_rows, program.prefill_choice = prefill[0].prefill_choice;
    program.least_prefill_queries = prefill[0].least_prefill_queries;
  } else if (!prefill.empty()) {
    program.decisions = std::move(prefill[0].decisions);
  }
  for (const int queries : decode_buckets(problem, program.prefill_choice, program.least_prefill_queries))
    KV_CHECK(add(bucket_problem(problem, queries), {make_decode, make_rotations}));
  program.tile_tokens = program.buckets[0].tile_tokens;
  if (has_prefill || has_two_passes) program.buckets.push_back(std::move(prefill[0]));
  return {};
}

Result<ProgramSource> make(const FamilyInput& input, bool has_fused) {
  const Problem& problem = input.problem;
  KV_TRY(program, begin_program(problem));
  if (problem.varlen && has_fused) KV_CHECK(make_buckets(input, program));
  for (const Family& family : families())
    if (!family.is_fused || (has_fused && !problem.varlen && family.serves(problem)))
      KV_CHECK(family.make(input, program));
  if (!has_fused) return std::move(program);
  explain_features(problem, program);
  program.decisions.push_back(
      {"rotation",
       fmt::format("{} before, {} after", program.k.is_transformed ? problem.k.rotation.name : "none",
                   program.v.is_transformed ? problem.v.rotation.name : "none"),
       "once per query and output row; keys and values stay rotated",
       {}});
  return std::move(program);
}

// Returns the refusal of make_buckets. More query rows need more registers and shared memory, so if the last bucket of
// decode is served, all are that have no measured shape. The message is that of the first bucket that is refused.
Result<void> check_buckets(const FamilyInput& input) {
  const Problem& problem = input.problem;
  PrefillChoice choice = PrefillChoice::never;
  int least_queries = 0;
  if (problem.query_rows() > 64)
    if (const auto plan = plan_prefill(problem)) choice = plan->choice, least_queries = plan->least_queries;
  const std::vector<int> buckets = decode_buckets(problem, choice, least_queries);
  const auto check = [&](int queries) { return check_decode({bucket_problem(problem, queries), input.registry}); };
  bool is_served = check(buckets.back()).has_value();
  for (const int queries : buckets)
    if (is_served && has_measured_shape({bucket_problem(problem, queries), input.registry}))
      is_served = check(queries).has_value();
  if (is_served) return {};
  for (const int queries : buckets) KV_CHECK(check(queries));
  return {};
}

}  // namespace

Result<ProgramSource> make_program(const Problem& problem, const Registry& registry) {
  return make({problem, registry}, true);
}

Result<ProgramSource> make_program(const Problem& problem, const Registry& registry, const BlockShape& shape) {
  return make({problem, registry, &shape}, true);
}

// Decode alone refuses problems: what prefill does not serve, decode does, and the other families serve every format
// that check_codec lets pass.
Result<void> check_program(const Problem& problem, const Registry& registry) {
  KV_CHECK(begin_program(problem));
  return problem.varlen ? check_buckets({problem, registry}) : check_decode({problem, registry});
}

Result<ProgramSource> make_reference_program(const Problem& problem, const Registry& registry) {
  return make({problem, registry}, false);
}

Result<ProgramSource> make_codec_program(const Format& format, int head_dim, const Arch& arch,
                                         const Registry& registry) {
  KV_CHECK(check_codec(format, head_dim));
  ProgramSource program;
  program.id = fmt::format("{}.d{}.rows", format.name, head_dim);
  program.arch = arch.name;
  program.layout = Layout::rows;
  program.head_dim = program.head_dim_v = head_dim;
  program.k = program.v = side_info(format, head_dim);
  program.kernels[Role::quantize_k] = emit_codec({format, head_dim, false, true, 0, false, arch.name}, registry);
  program.kernels[Role::dequantize_k] = emit_codec({format, head_dim, false, false, 0, false, arch.name}, registry);
  return program;
}

std::string explain(const ProgramSource& program) {
  std::size_t kernels = 0;
  for_each_kernel(program, [&](Role, const Source&) { ++kernels; });
  std::string text = fmt::format("{} on {}: {} kernels\n", program.id, program.arch, kernels);
  for (const Decision& decision : program.decisions) {
    // A choice that is wider than its column has its reason in the next line.
    constexpr std::size_t kChoice = 34;
    const std::string gap = decision.choice.size() > kChoice ? "\n" + std::string(13 + kChoice, ' ') : "";
    text += fmt::format("  {:<10} {:<{}}{} {}\n", decision.what, decision.choice, kChoice, gap, decision.why);
    for (const std::string& rejected : decision.rejected) text += fmt::format("    rejected {}\n", rejected);
  }
  for (const auto& [role, source] : program.kernels)
    text += fmt::format("  {:<23} {:>4} threads {:>7} bytes shared  {}\n", to_string(role), source.threads,
                        source.shared_bytes, source.name);
  for (const ProgramSource& pass : program.second_pass) text += "second pass: " + explain(pass);
  int least = 1;
  for (const ProgramSource& bucket : program.buckets) {
    if (bucket.kernels.count(Role::prefill) != 0) least = bucket.least_prefill_queries;
    if (bucket.kernels.count(Role::dequantize_chunk_k) != 0 && bucket.kernels.count(Role::prefill) == 0)
      least = std::max(bucket.least_two_pass_queries, 1);
    text += fmt::format("queries {}..{} of a sequence: ", least, bucket.query_length) + explain(bucket);
    least = bucket.query_length + 1;
  }
  return text;
}

}  // namespace kvjit
