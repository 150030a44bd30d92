// make_by_slots: kernels of quantize and dequantize for tokens that slots name.
// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include <optional>

#include "generator/kernels/operations/operations.hpp"

namespace kvjit {
namespace {

constexpr std::pair<Element, kv::RowType> kTypes[] = {
    {Element::f16, kv::RowType::f16}, {Element::bf16, kv::RowType::bf16}, {Element::f32, kv::RowType::f32}};

CodecPlan plan_by_slots(const Problem& problem, bool is_key, bool is_quantize, kv::SlotType type) {
  CodecPlan side = side_plan(problem, is_key ? 0 : 1);
  side.is_quantize = is_quantize;
  side.slots = type == kv::SlotType::i32 ? "int" : "i64";
  return side;
}

// The bulk kernel for rows of one element type, if there is one.
std::optional<Source> tiles_by_slots(const Problem& problem, const CodecPlan& side, Element element,
                                     const Registry& registry) {
  Decision unused;
  const BulkCall call{side.is_quantize, element};
  const auto plan = plan_bulk(side.format, side.head_dim, side.is_planar, problem.arch, unused);
  if (!plan) return std::nullopt;
  const auto kernel = plan_bulk_kernel(*plan, side.format, call, problem.arch);
  if (!kernel) return std::nullopt;
  return emit_bulk(side, *plan, *kernel, call, registry);
}

}  // namespace

Result<Source> make_by_slots(const Problem& problem, Role role, kv::SlotType type, const Registry& registry) {
  for (const bool is_key : {true, false})
    for (const bool is_quantize : {true, false}) {
      const CodecPlan side = plan_by_slots(problem, is_key, is_quantize, type);
      const Role any = is_quantize ? (is_key ? Role::quantize_k : Role::quantize_v)
                                   : (is_key ? Role::dequantize_k : Role::dequantize_v);
      if (role == any) return emit_codec(side, registry);
      for (const auto& [element, row_type] : kTypes)
        if (role == bulk_role(is_quantize, is_key, row_type))
          if (auto tiles = tiles_by_slots(problem, side, element, registry)) return *std::move(tiles);
    }
  return fail(Code::internal, fmt::format("no kernel of {} goes by slots", to_string(role)));
}

std::vector<Source> all_by_slots(const Problem& problem, kv::SlotType type, const Registry& registry) {
  std::vector<Source> all;
  for (const bool is_key : {true, false})
    for (const bool is_quantize : {true, false}) {
      if (is_quantize && type == kv::SlotType::i64) continue;
      const CodecPlan side = plan_by_slots(problem, is_key, is_quantize, type);
      all.push_back(emit_codec(side, registry));
      for (const auto& [element, row_type] : kTypes)
        if (auto tiles = tiles_by_slots(problem, side, element, registry)) all.push_back(*std::move(tiles));
    }
  return all;
}

}  // namespace kvjit
