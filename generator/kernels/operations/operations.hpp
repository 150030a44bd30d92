// Kernels that a program makes when a call first asks for them: copies to other caches, and rotary positions. Programs
// do not carry them, so who asks for none pays for none.
// SPDX-License-Identifier: MIT
#pragma once
#include <string_view>
#include <vector>

#include "args/slots.cuh"
#include "generator/kernels/codec/emit.hpp"
#include "generator/resolve/problem.hpp"

namespace kvjit {

enum class CopyKind {
  bytes,        // the formats are one: stored bytes go where the other layout has them
  rotated,      // decoded and encoded in the domain that both formats code: rotated alike, or not at all
  dequantized,  // by way of the caller's domain
};
const char* to_string(CopyKind kind);

struct CopyPlan {
  CodecPlan from, to;
  CopyKind kind = CopyKind::dequantized;
  int alignment = 2;    // of all addresses and strides of both caches, bytes: a power of two up to 16
  int lane_values = 0;  // of kernels whose lanes take whole blocks of both formats; 0: a row a warp
};
// Fails with unsupported. has_same_scale: the tensor scales of both caches, if they have any, are equal.
Result<CopyPlan> plan_copy(const CodecPlan& from, const CodecPlan& to, bool has_same_scale, int alignment,
                           const Registry& registry);
// Whether rows of both stand for the same numbers by the same bytes, but for where the layout has them.
bool have_same_bytes(const CodecPlan& from, const CodecPlan& to, const Registry& registry);
Source emit_copy(const CopyPlan& plan, const Registry& registry);

// quantize or dequantize by slots: the kernel of a role (one row a warp, or many at once) for slots of one type.
Result<Source> make_by_slots(const Problem& problem, Role role, kv::SlotType type, const Registry& registry);
// All that such calls may want of one type of slots; of i64 without quantize, which is the program's own.
std::vector<Source> all_by_slots(const Problem& problem, kv::SlotType type, const Registry& registry);

// Rows of a side turned by position: in place, or on their way into the cache.
Source emit_shift(const CodecPlan& plan, const Registry& registry);
Source emit_quantize_rope(const CodecPlan& plan, const Registry& registry);

// Many rows at once, 16 a warp on the tensor cores, of formats behind a Walsh-Hadamard transform of 128 whose codes the
// write path takes by tiles; nothing of others, and of devices without room for the tables. Tiles are turned in the
// spans of runtime/launch/rope.hpp.
std::optional<Source> emit_bulk_copy(const CopyPlan& plan, const Registry& registry);
std::optional<Source> emit_shift_bulk(const CodecPlan& plan, const Registry& registry);
std::optional<Source> emit_quantize_rope_bulk(const CodecPlan& plan, const Registry& registry);

// What calls may ask for beside a program's own kernels: for who makes kernels ahead, and has no compiler when the
// calls come.
struct OperationSet {
  bool slots = false;  // quantize by slots of 32 bits, dequantize by slots
  bool rope = false;   // quantize of rows that turn
  bool shift = false;
  bool copy = false;  // of K to K and of V to V, from each cache of a list to each, itself among them
};
Result<OperationSet> read_operations(std::string_view list);  // "slots, shift"; fails with usage
// The kernels of these operations on the caches of a list, for every alignment that a call may have.
Result<std::vector<Source>> operation_kernels(const std::vector<Problem>& problems, const OperationSet& set,
                                              const Registry& registry);

}  // namespace kvjit
