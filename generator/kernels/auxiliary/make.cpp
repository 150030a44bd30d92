// make_auxiliary: emits the kernels around attention that a problem's formats, checks and features need. The probe is
// part of no program; `kvjit bench` emits it.
// SPDX-License-Identifier: MIT
#include "generator/kernels/auxiliary/emit.hpp"
#include "generator/kernels/families.hpp"

namespace kvjit {

Result<void> make_rotations(const FamilyInput& input, ProgramSource& program) {
  const auto& [problem, registry, shape] = input;
  if (program.k.is_transformed) program.kernels[Role::rotate_q] = emit_rotate(problem, false, registry);
  if (program.v.is_transformed) program.kernels[Role::rotate_out] = emit_rotate(problem, true, registry);
  return {};
}

Result<void> make_auxiliary(const FamilyInput& input, ProgramSource& program) {
  const auto& [problem, registry, shape] = input;
  KV_CHECK(make_rotations(input, program));
  if (problem.features.lse) program.kernels[Role::merge_contexts] = emit_merge_contexts(problem, registry);
  if (problem.features.mask && problem.features.token_ranges)
    program.kernels[Role::mask_ranges] = emit_mask_ranges(program.arch, registry);
  if (!problem.checks) return {};
  program.kernels[Role::check] = emit_check(program.arch, registry);
  program.decisions.push_back({"checks",
                               "lengths, page tables, slots",
                               "a launch ahead of each call checks them, and the call does nothing if one is wrong",
                               {}});
  return {};
}

}  // namespace kvjit
