// add_two_passes: see two_pass.hpp.
// SPDX-License-Identifier: MIT
#include "generator/kernels/prefill/two_pass.hpp"

#include <fmt/format.h>

#include "generator/kernels/codec/emit.hpp"
#include "generator/kernels/prefill/emit.hpp"

namespace kvjit {
namespace {

// Query rows of a KV head from which on calls take two passes, as measured (NOTES.md). The first pass takes the same
// time for any number of them. Without prefill in one pass the other way is decode, in chunks of 64 rows; mma.sync
// gains less over it than wgmma. One pass over rows that may have powers of two waits for those of V: two passes take
// 0.86 to 0.94 of its time at 8192 rows, and 0.93 at 4096.
constexpr int kLeastRows = 2048, kLeastRowsWithoutOnePass = 512, kLeastRowsOfPowers = 4096;

// Whether one pass is as fast for any number of rows: rows are only copied; or nothing is rotated, and the producer
// unpacks a tile in less time than the products take, which it does from planes and for up to 128 dimensions.
bool is_fast(const PrefillPlan& plan) {
  const bool is_rotated = plan.k.format.is_transformed() || plan.v.format.is_transformed();
  return plan.copies_rows || (plan.stages == 2 && !is_rotated && plan.is_planar() && plan.page_tokens == 0);
}

int least_queries(const Problem& problem, const PrefillPlan* one_pass) {
  const bool has_fast = one_pass && is_fast(*one_pass), by_wgmma = problem.arch.has("wgmma");
  const bool takes_powers = has_fast && by_wgmma && one_pass->has_powers();
  if (problem.features.mask || (has_fast && !takes_powers)) return 0;
  const int rows = takes_powers ? kLeastRowsOfPowers : one_pass || !by_wgmma ? kLeastRows : kLeastRowsWithoutOnePass;
  return (rows + problem.q_heads_per_kv - 1) / problem.q_heads_per_kv;
}

std::string choice_text(const Problem& problem, int least_queries) {
  if (problem.features.mask)
    return "calls that ask for it: decode is faster where each score loads an element of a mask";
  if (least_queries == 0) return "calls that ask for it: one pass is as fast";
  return fmt::format(
      "calls of {} queries and more: chunks of the context become halves once, in a workspace that does "
      "not grow with it, and prefill attends to them",
      least_queries);
}

// The kernel of the first pass for one side.
struct FirstPass {
  Source kernel;
  // Values of rows with a dense rotation stay in the rotated domain, because undoing it takes longer for all tokens
  // than rotating the queries and the output. Residual signs are another projection, so they are undone.
  bool stays_rotated = false;
  bool fits_rows = false;  // rows beyond the range of halves have powers of two
};
// Whether rows may hold numbers that halves do not. Rows that are not read as prefill in one pass reads them may.
bool may_leave_halves(const Format& format, const CodecPlan& codec) {
  const auto side = plan_side(format, codec.head_dim, codec.is_planar, true);
  return !side || side->sections.size() > 1 || format.has_head_scales() || fitting_range(*side).is_wide;
}
FirstPass first_pass(const FamilyInput& input, int side) {
  const Problem& problem = input.problem;
  CodecPlan codec = side_plan(problem, side);
  codec.has_lengths = true;
  codec.reads_seen = problem.features.leaves_unseen(problem.causal);
  const Format& format = codec.format;
  const BulkCall call{false, Element::f16};
  Decision decision;
  const auto plan = plan_bulk(format, codec.head_dim, codec.is_planar, problem.arch, decision);
  // Formats of the other bulk kernels have scales of fp16 and smaller entries, which halves hold.
  codec.fits_rows = (!plan || plan->family == BulkFamily::blocks) && may_leave_halves(format, codec);
  constexpr int kWarpLanes = 32;
  if (plan && !(codec.fits_rows && plan->fitting_lanes(codec.head_dim) > kWarpLanes))
    if (const auto kernel = plan_bulk_kernel(*plan, format, call, problem.arch))
      return {emit_bulk(codec, *plan, *kernel, call, input.registry), false, codec.fits_rows};
  const bool stays_rotated = format.rotation.kind == RotationKind::dense && !format.has_residual();
  return {emit_codec(codec, input.registry), stays_rotated, codec.fits_rows};
}

// The problem of the second pass: the same call over f16 rows in layout planar, in the rotated domain where they stay
// there.
Problem second_pass_problem(const Problem& problem, const Format& f16, const FirstPass& k, const FirstPass& v) {
  Problem second = problem;
  second.k = second.v = f16;
  second.head_dim_v = v.stays_rotated ? problem.v.stored_dim(problem.v_dim()) : problem.v_dim();
  if (k.stays_rotated) second.head_dim = problem.k.stored_dim(problem.head_dim), second.q_type = Element::f32;
  if (v.stays_rotated) second.out_type = Element::f32;
  second.layout = second.page_layout = Layout::planar;
  second.page_tokens = second.token_heads = 0;
  second.append = false;  // the call has stored its new tokens
  second.id = problem_id(second) + ".context_chunks";
  return second;
}

Result<ProgramSource> second_pass(const Problem& second, const ChunkRows& rows, const Registry& registry) {
  KV_TRY(plan, plan_prefill(second, rows));
  ProgramSource pass;
  pass.id = second.id + (!rows.has_other ? "" : plan.has_powers() ? ".powers" : ".no_powers");
  pass.title = second.title, pass.arch = second.arch.name;
  plan.name = pass.id + "." + pass.arch;
  static_cast<AttentionShape&>(pass) = second;
  pass.head_dim_v = second.v_dim();
  pass.rows = second.query_rows();
  pass.k.rotated_dim = pass.k.stored_dim = second.head_dim, pass.v.rotated_dim = pass.v.stored_dim = second.v_dim();
  pass.k.format = second.k.name, pass.v.format = second.v.name;
  pass.prefill_rows = plan.rows(), pass.prefill_splits = plan.splits();
  pass.prefill_choice = PrefillChoice::always;
  Source& kernel = pass.kernels[Role::prefill] = emit_prefill(plan, registry);
  kernel.may_overlap = second.arch.has("programmatic_launch");
  return pass;
}

}  // namespace

Result<void> add_two_passes(const FamilyInput& input, const PrefillPlan* one_pass, ProgramSource& program) {
  const Problem& problem = input.problem;
  for (const Format* format : {&problem.k, &problem.v})
    if (const Section& codes = format->codes(); codes.kind == CodeKind::plain && codes.element == Element::f32)
      return fail(Code::unsupported, fmt::format("{}: halves do not hold its range", format->name));
  if (problem.query_rows() <= 64) return fail(Code::unsupported, "up to 64 query rows take less time than that");
  KV_TRY(f16, input.registry.format("f16", {}));
  if (problem.is_planar() && problem.page_tokens == 0 && problem.k.name == f16->name && problem.v.name == f16->name)
    return fail(Code::unsupported, "the cache has halves already");
  FirstPass k = first_pass(input, 0), v = first_pass(input, 1);
  const Problem second = second_pass_problem(problem, *f16, k, v);
  const bool has_powers = k.fits_rows || v.fits_rows;
  for (const bool takes_powers : {false, true}) {
    if (takes_powers && !has_powers) break;
    KV_TRY(pass,
           second_pass(second, {takes_powers && k.fits_rows, takes_powers && v.fits_rows, has_powers}, input.registry));
    program.second_pass.push_back(std::move(pass));
  }
  program.k.stays_rotated = k.stays_rotated, program.v.stays_rotated = v.stays_rotated;
  program.k.fits_rows = k.fits_rows, program.v.fits_rows = v.fits_rows;
  program.kernels[Role::dequantize_chunk_k] = std::move(k.kernel);
  program.kernels[Role::dequantize_chunk_v] = std::move(v.kernel);
  const bool may_overlap = problem.arch.has("programmatic_launch");
  for (Source* kernel : {&program.kernels[Role::dequantize_chunk_k], &program.kernels[Role::dequantize_chunk_v]})
    kernel->may_overlap = may_overlap;
  program.least_two_pass_queries = least_queries(problem, one_pass);
  program.decisions.push_back({"prefill", "in two passes", choice_text(problem, program.least_two_pass_queries), {}});
  return {};
}

}  // namespace kvjit
