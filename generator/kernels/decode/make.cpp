// make_decode: plans and emits decode, and merge if decode may leave KV splits for it.
// SPDX-License-Identifier: MIT
#include "generator/kernels/decode/emit.hpp"
#include "generator/kernels/decode/tuned_shape.hpp"
#include "generator/kernels/families.hpp"

namespace kvjit {
namespace {

Tuning tuning_of(const FamilyInput& input) {
  if (!input.shape) return find_tuning(input.registry.tuning(input.problem.arch.name), input.problem);
  Tuning requested;
  requested.match = Tuning::Match::requested;
  requested.shape = *input.shape;
  requested.why = to_string(*input.shape);
  return requested;
}

}  // namespace

Result<void> check_decode(const FamilyInput& input) {
  KV_CHECK(plan_decode(input.problem, tuning_of(input)));
  return {};
}

bool has_measured_shape(const FamilyInput& input) { return tuning_of(input).is_same_shape; }

Result<void> make_decode(const FamilyInput& input, ProgramSource& program) {
  const Problem& problem = input.problem;
  KV_TRY(plan, plan_decode(problem, tuning_of(input)));
  plan.name = problem.id + "." + problem.arch.name;
  program.tile_tokens = plan.tile;
  program.rows = plan.rows * plan.heads;
  program.query_chunks = plan.query_chunks;
  program.rotates_queries = plan.rotates_queries;
  program.fuses_merge = plan.fuses_merge;
  program.merge_steps = plan.merge_steps();
  program.append = plan.append;
  program.rotates_output = plan.rotates_output;
  program.decisions.insert(program.decisions.end(), plan.decisions.begin(), plan.decisions.end());
  Source& decode = program.kernels[Role::decode] = emit_decode(plan, input.registry);
  decode.may_overlap = !problem.checks && problem.arch.has("programmatic_launch");
  if (plan.may_need_merge_kernel()) {
    Source& merge = program.kernels[Role::merge] = emit_merge(plan, input.registry);
    merge.may_overlap = decode.may_overlap;
  }
  return {};
}

}  // namespace kvjit
