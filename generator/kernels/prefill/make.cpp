// make_prefill: plans and emits prefill, in one pass and in two. Where neither serves a problem, decode does, in query
// chunks, and a decision says why.
// SPDX-License-Identifier: MIT
#include "generator/kernels/codec/emit.hpp"
#include "generator/kernels/families.hpp"
#include "generator/kernels/prefill/emit.hpp"
#include "generator/kernels/prefill/two_pass.hpp"

namespace kvjit {
namespace {

// Calls by prefill store their new tokens by launches of their own, because many blocks read the same tokens.
void add_append(const FamilyInput& input, ProgramSource& program) {
  for (int side = 0; side < 2; ++side) {
    CodecPlan codec = side_plan(input.problem, side, true);
    codec.has_lengths = true;
    program.kernels[side == 0 ? Role::append_k : Role::append_v] = emit_codec(codec, input.registry);
  }
  program.decisions.push_back(
      {"append", "ahead of prefill", "calls by prefill store their new tokens by two launches", {}});
}

}  // namespace

Result<void> make_prefill(const FamilyInput& input, ProgramSource& program) {
  auto plan = plan_prefill(input.problem);
  if (!plan && plan.error().code != Code::unsupported) return tl::unexpected(plan.error());
  if (plan) {
    plan->name = input.problem.id + "." + input.problem.arch.name;
    program.prefill_rows = plan->rows(), program.prefill_splits = plan->splits();
    program.rotates_queries = plan->rotates_queries;  // by the same rule as decode
    program.rotates_output = plan->rotates_output;
    program.prefill_choice = plan->choice;
    program.least_prefill_queries = plan->least_queries;
    program.decisions.insert(program.decisions.end(), plan->decisions.begin(), plan->decisions.end());
    program.kernels[Role::prefill] = emit_prefill(*plan, input.registry);
    program.kernels[Role::prefill].may_overlap = input.problem.arch.has("programmatic_launch");
  }
  const auto two = add_two_passes(input, plan ? &*plan : nullptr, program);
  if (!two && two.error().code != Code::unsupported) return two;
  if (input.problem.append && (plan || two)) add_append(input, program);
  if (!plan)
    program.decisions.push_back(
        {"prefill", two ? "not in one pass" : "none: query chunks of decode", plan.error().message, {}});
  return {};
}

}  // namespace kvjit
