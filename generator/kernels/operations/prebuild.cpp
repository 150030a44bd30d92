// operation_kernels: the kernels of a set of operations on a list of caches, made ahead of time.
// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include "generator/kernels/operations/operations.hpp"

namespace kvjit {
namespace {

struct Name {
  std::string_view name;
  bool OperationSet::*member;
};
constexpr Name kNames[] = {{"slots", &OperationSet::slots},
                           {"rope", &OperationSet::rope},
                           {"shift", &OperationSet::shift},
                           {"copy", &OperationSet::copy}};

constexpr int kMostAlignment = 16;

Result<void> add_copies(const CodecPlan& from, const CodecPlan& to, const Registry& registry,
                        std::vector<Source>& all) {
  const bool has_scale = from.format.has_tensor_scale() || to.format.has_tensor_scale();
  for (const bool has_same_scale : {true, false}) {
    if (!has_same_scale && !has_scale) continue;  // neither format has a tensor scale that could differ
    for (int alignment = kMostAlignment; alignment > 0; alignment /= 2) {
      KV_TRY(plan, plan_copy(from, to, has_same_scale, alignment, registry));
      all.push_back(emit_copy(plan, registry));
      if (auto tiles = emit_bulk_copy(plan, registry)) all.push_back(std::move(*tiles));
      if (plan.kind != CopyKind::bytes) break;  // only kernels that copy bytes depend on the alignment
    }
  }
  return {};
}

}  // namespace

Result<OperationSet> read_operations(std::string_view list) {
  OperationSet set;
  while (!list.empty()) {
    const std::size_t comma = std::min(list.find(','), list.size());
    std::string_view name = list.substr(0, comma);
    while (!name.empty() && name.front() == ' ') name.remove_prefix(1);
    while (!name.empty() && name.back() == ' ') name.remove_suffix(1);
    const Name* entry = nullptr;
    for (const Name& one : kNames)
      if (one.name == name) entry = &one;
    if (!entry)
      return fail(Code::usage, fmt::format("no operation is called '{}'", name), {},
                  {"there are slots, rope, shift, copy"});
    set.*entry->member = true;
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return set;
}

Result<std::vector<Source>> operation_kernels(const std::vector<Problem>& problems, const OperationSet& set,
                                              const Registry& registry) {
  std::vector<Source> all;
  for (const Problem& problem : problems) {
    if (set.slots)
      for (const kv::SlotType type : {kv::SlotType::i32, kv::SlotType::i64})
        for (Source& source : all_by_slots(problem, type, registry)) all.push_back(std::move(source));
    for (const int side : {0, 1}) {
      const CodecPlan plan = side_plan(problem, side);
      if (set.rope) all.push_back(emit_quantize_rope(plan, registry));
      if (set.rope)
        if (auto tiles = emit_quantize_rope_bulk(plan, registry)) all.push_back(std::move(*tiles));
      if (set.shift) all.push_back(emit_shift(plan, registry));
      if (set.shift)
        if (auto tiles = emit_shift_bulk(plan, registry)) all.push_back(std::move(*tiles));
      if (!set.copy) continue;
      for (const Problem& other : problems)
        if (other.arch.name == problem.arch.name && other.dim(side) == problem.dim(side))
          KV_CHECK(add_copies(plan, side_plan(other, side), registry, all));
    }
  }
  return all;
}

}  // namespace kvjit
