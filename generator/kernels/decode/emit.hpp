// Text of the decode family: decode itself, and the merge of its KV splits.
// SPDX-License-Identifier: MIT
#pragma once
#include "generator/catalogue/registry.hpp"
#include "generator/emit/writer.hpp"
#include "generator/kernels/decode/plan.hpp"
#include "generator/source.hpp"

namespace kvjit {

Source emit_decode(const DecodePlan& plan, const Registry& registry);
// For plans with may_need_merge_kernel().
Source emit_merge(const DecodePlan& plan, const Registry& registry);

namespace emit {

// Writes the sizes of output rows into the plan of a kernel that writes them.
void write_output_dims(Writer& w, const DecodePlan& plan);
// Adds the fragments that overload what those of every side use, and so stand before them.
void overload_fragments(Writer& w, const SidePlan& k, const SidePlan& v);
// Adds the fragments that write_side needs, beside those of every side.
void side_fragments(Writer& w, const SidePlan& side);
// Writes one side: its sections, the geometry of its staged rows, and struct `type`, which is KeySide or ValueSide.
// threads: of a block.
void write_side(Writer& w, const SidePlan& side, const std::string& type, int threads, const Paging& paging);
// Writes the member function that unpacks the words of a lane read to code lanes.
void write_unpack(Writer& w, const SectionPlan& section);

}  // namespace emit
}  // namespace kvjit
