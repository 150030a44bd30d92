// make_codec: plans and emits quantize and dequantize of both sides with one row a warp, and their bulk forms for each
// element type of rows, where format and arch allow them.
// SPDX-License-Identifier: MIT
#include <utility>

#include "generator/kernels/codec/emit.hpp"
#include "generator/kernels/families.hpp"

namespace kvjit {
namespace {

void add_bulk(const FamilyInput& input, bool is_key, ProgramSource& program) {
  constexpr std::pair<Element, kv::RowType> kTypes[] = {
      {Element::f16, kv::RowType::f16}, {Element::bf16, kv::RowType::bf16}, {Element::f32, kv::RowType::f32}};
  const Problem& problem = input.problem;
  const Format& f = is_key ? problem.k : problem.v;
  Decision decision;
  const auto plan = plan_bulk(f, problem.dim(is_key ? 0 : 1), problem.is_planar(), problem.arch, decision);
  decision.what = is_key ? "write k" : "write v";
  program.decisions.push_back(decision);
  if (!plan) return;
  for (const bool is_quantize : {true, false})
    for (const auto& [element, type] : kTypes) {
      const BulkCall call{is_quantize, element};
      if (const auto kernel = plan_bulk_kernel(*plan, f, call, problem.arch))
        program.kernels[bulk_role(is_quantize, is_key, type)] =
            emit_bulk(side_plan(problem, is_key ? 0 : 1, is_quantize), *plan, *kernel, call, input.registry);
    }
}

}  // namespace

Result<void> make_codec(const FamilyInput& input, ProgramSource& program) {
  for (const bool is_quantize : {true, false}) {
    program.kernels[is_quantize ? Role::quantize_k : Role::dequantize_k] =
        emit_codec(side_plan(input.problem, 0, is_quantize), input.registry);
    program.kernels[is_quantize ? Role::quantize_v : Role::dequantize_v] =
        emit_codec(side_plan(input.problem, 1, is_quantize), input.registry);
  }
  for (const bool is_key : {true, false}) add_bulk(input, is_key, program);
  return {};
}

}  // namespace kvjit
