// Operations: kernels that change caches beside attention and codec: copies to other caches, RoPE, and codec by slots.
// A program does not carry them. The runtime makes one when a call first needs it, or ahead of time by name
// (prebuild.cpp), so engines that use none do not pay for them.
// SPDX-License-Identifier: MIT
#pragma once
#include <string_view>
#include <vector>

#include "args/slots.cuh"
#include "generator/kernels/codec/emit.hpp"
#include "generator/resolve/problem.hpp"

namespace kvjit {

enum class CopyKind {
  bytes,        // the formats are equal: stored bytes go to their places in the other layout
  rotated,      // decoded and encoded in the rotated domain, which both formats share
  dequantized,  // decoded to the caller's domain, and encoded from there
};
const char* to_string(CopyKind kind);

struct CopyPlan {
  CodecPlan from, to;
  CopyKind kind = CopyKind::dequantized;
  int alignment = 2;    // bytes that divide all addresses and strides of both caches: a power of two up to 16
  int lane_values = 0;  // values of a lane, if lanes take whole blocks of both formats; 0: one row a warp
};
// Fails with unsupported. has_same_scale: the tensor scales of both caches, if their formats have one, are equal.
Result<CopyPlan> plan_copy(const CodecPlan& from, const CodecPlan& to, bool has_same_scale, int alignment,
                           const Registry& registry);
// Whether the formats of both sides are equal, so that equal values have equal bytes, at the places that each layout
// gives them.
bool have_same_bytes(const CodecPlan& from, const CodecPlan& to, const Registry& registry);
Source emit_copy(const CopyPlan& plan, const Registry& registry);

// The kernel of a role of quantize or dequantize (one row a warp, or bulk) for slots of one type.
Result<Source> make_by_slots(const Problem& problem, Role role, kv::SlotType type, const Registry& registry);
// All kernels by slots of one type. quantize by slots of i64 is missing, because the program's own kernels take those.
std::vector<Source> all_by_slots(const Problem& problem, kv::SlotType type, const Registry& registry);

// Kernels that apply RoPE to rows of a side: in place (shift), or on their way into the cache.
Source emit_shift(const CodecPlan& plan, const Registry& registry);
Source emit_quantize_rope(const CodecPlan& plan, const Registry& registry);

// The bulk forms: 16 rows a warp on the tensor cores. There is none unless the format has a Walsh-Hadamard transform of
// 128 values and the codec's bulk tiles take its codes, and unless the tables fit the shared memory of the arch.
// runtime/launch/rope.hpp says which RoPE spans they serve.
std::optional<Source> emit_bulk_copy(const CopyPlan& plan, const Registry& registry);
std::optional<Source> emit_shift_bulk(const CodecPlan& plan, const Registry& registry);
std::optional<Source> emit_quantize_rope_bulk(const CodecPlan& plan, const Registry& registry);

// Operations whose kernels are made ahead of time, for engines that have no compiler when the calls come.
struct OperationSet {
  bool slots = false;  // quantize by slots of 32 bits, and dequantize by slots
  bool rope = false;   // quantize with RoPE
  bool shift = false;
  bool copy = false;  // of K to K and of V to V, from each cache of a list to each cache of the list, itself included
};
Result<OperationSet> read_operations(std::string_view list);  // "slots, shift"; fails with usage
// The kernels of these operations on the caches of a list, for every alignment that a call may have.
Result<std::vector<Source>> operation_kernels(const std::vector<Problem>& problems, const OperationSet& set,
                                              const Registry& registry);

}  // namespace kvjit
