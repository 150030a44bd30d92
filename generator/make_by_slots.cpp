// make_by_slots: kernels of the write path, and back, for tokens that slots name.
// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include "generator/operations.hpp"

namespace kvjit {

Result<Source> make_by_slots(const Problem& problem, Role role, kv::SlotType type, const Registry& registry) {
  constexpr Element kElements[] = {Element::f16, Element::bf16, Element::f32};
  constexpr kv::RowType kTypes[] = {kv::RowType::f16, kv::RowType::bf16, kv::RowType::f32};
  for (const bool is_key : {true, false})
    for (const bool is_quantise : {true, false}) {
      CodecPlan side = side_plan(problem, is_key ? 0 : 1);
      side.is_quantise = is_quantise;
      side.slots = type == kv::SlotType::i32 ? "int" : "i64";
      const Role any = is_quantise ? (is_key ? Role::quantise_k : Role::quantise_v)
                                   : (is_key ? Role::dequantise_k : Role::dequantise_v);
      if (role == any) return emit_codec(side, registry);
      for (int i = 0; i < 3; ++i) {
        if (role != tile_role(is_quantise, is_key, kTypes[i])) continue;
        Decision unused;
        const TileCall call{is_quantise, kElements[i]};
        if (const auto plan = plan_tiles(side.format, side.head_dim, side.is_planar, problem.arch, unused))
          if (const auto kernel = plan_tile_kernel(*plan, side.format, call, problem.arch))
            return emit_tiles(side, *plan, *kernel, call, registry);
      }
    }
  return fail(Code::internal, fmt::format("no kernel of {} goes by slots", to_string(role)));
}

}  // namespace kvjit
