// The C interface of operations on caches: quantize, dequantize, copy, shift. Kernels that a program does not carry are
// generated on the first call that needs them and cached in the ServedSpec. runtime/kvjit.h is the manual.
// SPDX-License-Identifier: MIT
#include "runtime/api/convert.hpp"
#include "runtime/api/support.hpp"
#include "runtime/base/sizes.hpp"
#include "runtime/launch/launch.hpp"
#include "runtime/launch/rope.hpp"

using kvjit::Code;
using kvjit::fail;
using kvjit::Result;
using namespace kvjit::c_api;

namespace {

static_assert(sizeof(kv::i64) == sizeof(kvjit_index));
static_assert(int(kv::SlotType::i64) == KVJIT_INT64 && int(kv::SlotType::i32) == KVJIT_INT32);
static_assert(int(kv::RowType::f16) == KVJIT_F16 && int(kv::RowType::bf16) == KVJIT_BF16 &&
              int(kv::RowType::f32) == KVJIT_F32);
static_assert(int(kv::RopePairs::neighbours) == KVJIT_ROPE_NEIGHBOURS &&
              int(kv::RopePairs::halves) == KVJIT_ROPE_HALVES);
static_assert(int(kvjit::CopyKind::bytes) == KVJIT_COPY_BYTES && int(kvjit::CopyKind::rotated) == KVJIT_COPY_ROTATED &&
              int(kvjit::CopyKind::dequantized) == KVJIT_COPY_DEQUANTIZED);

Result<kv::RopeArgs> convert_rope(const kvjit_rope* from) {
  KV_TRY(c, read_struct(from, "rope"));
  const auto or_else = [](double value, double otherwise) { return value != 0 ? value : otherwise; };
  kvjit::Rope rope;
  rope.pairs = static_cast<kv::RopePairs>(c.pairs);
  rope.first = c.first, rope.dims = c.dims;
  rope.base = or_else(c.base, rope.base), rope.scale = or_else(c.scale, rope.scale);
  rope.magnitude = or_else(c.magnitude, rope.magnitude);
  rope.extrapolation = c.extrapolation, rope.trained_tokens = c.trained_tokens;
  rope.beta_fast = or_else(c.beta_fast, rope.beta_fast), rope.beta_slow = or_else(c.beta_slow, rope.beta_slow);
  KV_TRY(args, kvjit::rope_args(rope));
  args.factors = c.factors, args.positions = c.positions, args.position = c.position;
  return std::move(args);
}

Result<kvjit::CacheCall> convert_tokens(const kvjit_cache_tokens* from, const char* name, int side) {
  KV_TRY(c, read_struct(from, name));
  return kvjit::CacheCall{side,
                          {convert(c.cache), convert(c.pages), c.slots, c.first_token,
                           c.tensor_scale != 0 ? c.tensor_scale : 1, static_cast<kv::SlotType>(c.slot_type)},
                          c.pages.pool_pages,
                          c.slot_count};
}

bool is_bulk(const auto& call) {
  return kvjit::product(1, call.sequences, call.tokens, call.heads) >= kvjit::kLeastBulkRows;
}

// The kernel of one side from the cache `kernels`; `make` generates it on the first call.
Result<const kvjit::Source*> kernel_of_side(ServedSpec& spec, std::map<int, kvjit::Source>& kernels, int side,
                                            kvjit::Source (*make)(const kvjit::CodecPlan&, const kvjit::Registry&)) {
  const std::lock_guard lock(spec.mutex);
  auto found = kernels.find(side);
  if (found == kernels.end())
    found = kernels.emplace(side, make(kvjit::side_plan(spec.problem, side), *spec.registry)).first;
  return &found->second;
}

kvjit::Source bulk_shift(const kvjit::CodecPlan& plan, const kvjit::Registry& registry) {
  auto tiles = kvjit::emit_shift_bulk(plan, registry);
  return tiles ? std::move(*tiles) : kvjit::emit_shift(plan, registry);
}

kvjit::Source bulk_rope(const kvjit::CodecPlan& plan, const kvjit::Registry& registry) {
  auto tiles = kvjit::emit_quantize_rope_bulk(plan, registry);
  return tiles ? std::move(*tiles) : kvjit::emit_quantize_rope(plan, registry);
}

Result<const kvjit::Source*> slots_kernel(ServedSpec& spec, kvjit::Role role, kv::SlotType type) {
  const std::lock_guard lock(spec.mutex);
  auto& kernels = spec.operation_kernels.by_slots;
  auto found = kernels.find({role, type});
  if (found == kernels.end()) {
    KV_TRY(source, kvjit::make_by_slots(spec.problem, role, type, *spec.registry));
    found = kernels.emplace(std::pair{role, type}, std::move(source)).first;
  }
  return &found->second;
}

// Whether the caller's scales of both caches are the same numbers.
bool have_same_scales(const kvjit::Program& from, const kvjit::Program& to, const kvjit::CopyCall& call) {
  const auto has_head_scales = [](const kvjit::Program& program, int side) {
    return (side == 0 ? program.source().k : program.source().v).has_head_scales;
  };
  const kv::CacheTokens &a = call.from.tokens, &b = call.to.tokens;
  if (a.tensor_scale != b.tensor_scale) return false;
  if (!has_head_scales(from, call.from.side) && !has_head_scales(to, call.to.side)) return true;
  return a.side.scales == b.side.scales && a.side.scales_head_stride == b.side.scales_head_stride &&
         a.side.scales_sequence_stride == b.side.scales_sequence_stride;
}

Result<const CopyKernel*> copy_kernel(kvjit_program* from, kvjit_program* to, const kvjit::CopyCall& call) {
  const kvjit::Registry& registry = *from->spec->registry;
  const CopyKey key{to->spec,
                    call.from.side,
                    call.to.side,
                    kvjit::Program::alignment_of(call, *from->program, *to->program),
                    have_same_scales(*from->program, *to->program, call),
                    is_bulk(call)};
  const std::lock_guard lock(from->spec->mutex);
  auto& copies = from->spec->operation_kernels.copies;
  if (const auto found = copies.find(key); found != copies.end()) return &found->second;
  KV_TRY(plan, kvjit::plan_copy(kvjit::side_plan(from->spec->problem, key.from_side),
                                kvjit::side_plan(to->spec->problem, key.to_side), key.has_same_scale, key.alignment,
                                registry));
  std::erase_if(copies, [](const auto& entry) { return entry.first.to.expired(); });
  std::optional<kvjit::Source> tiles;
  if (key.is_bulk) tiles = kvjit::emit_bulk_copy(plan, registry);
  return &copies.emplace(key, CopyKernel{plan.kind, tiles ? std::move(*tiles) : kvjit::emit_copy(plan, registry)})
              .first->second;
}

// The common code of quantize and dequantize.
Result<void> codec(kvjit_program* program, int side, const kvjit_codec_call* call, bool is_quantize) {
  KV_CHECK(side_of(program, side));
  KV_TRY(c, read_struct(call, "call"));
  if (c.x_type != KVJIT_F16 && c.x_type != KVJIT_BF16 && c.x_type != KVJIT_F32)
    return fail(Code::usage,
                fmt::format("x_type {}; KVJIT_F16 (1), KVJIT_BF16 (2) and KVJIT_F32 (3) are possible", c.x_type));
  if (is_quantize && c.keep_rotated)
    return fail(Code::usage, "keep_rotated is set for quantize, which does not read it");
  kv::CodecArgs args{};
  args.x = convert(c.x);
  args.side = convert(c.cache);
  const kvjit::SlotNumbers slots{c.slots, static_cast<kv::SlotType>(c.slot_type)};
  args.first_token = c.slots ? 0 : c.first_token;
  args.sequences = c.sequences;
  args.tokens = c.tokens;
  args.heads = c.heads;
  args.x_type = static_cast<kv::RowType>(c.x_type);
  args.keep_rotated = c.keep_rotated != 0;
  args.tensor_scale = c.tensor_scale != 0 ? c.tensor_scale : 1;
  const kv::PageTable table = convert(c.pages);
  const kvjit::CheckBounds check{static_cast<kv::CheckRecord*>(c.check), c.pages.pool_pages, c.pages.pool_pages,
                                 c.slot_count};
  const kvjit::Program& runs = *program->program;
  if (!c.rope && c.slots && !(is_quantize && slots.type == kv::SlotType::i64)) {
    KV_TRY(kernel, slots_kernel(*program->spec, runs.codec_role(side, is_quantize, args), slots.type));
    return runs.by_slots(side, is_quantize, args, slots, *kernel, c.stream, check);
  }
  if (!c.rope) {
    args.slots = static_cast<const kv::i64*>(c.slots);
    return is_quantize ? runs.quantize(side, args, c.stream, table, check)
                       : runs.dequantize(side, args, c.stream, table, check);
  }
  if (!is_quantize) return fail(Code::usage, "rope is set for dequantize, which does not rotate rows");
  KV_TRY(rope, convert_rope(c.rope));
  ServedSpec& spec = *program->spec;
  const bool by_tiles = is_bulk(args) && kvjit::is_served_by_bulk(rope) && kvjit::has_aligned_rows(args);
  KV_TRY(kernel, by_tiles ? kernel_of_side(spec, spec.operation_kernels.tile_ropes, side, &bulk_rope)
                          : kernel_of_side(spec, spec.operation_kernels.ropes, side, &kvjit::emit_quantize_rope));
  return runs.quantize_rope(side, args, rope, *kernel, c.stream, table, check, slots);
}

}  // namespace

kvjit_status kvjit_quantize(kvjit_program* program, int side, const kvjit_codec_call* call, kvjit_error* error) {
  return guarded(error, [&] { return codec(program, side, call, true); });
}

kvjit_status kvjit_dequantize(kvjit_program* program, int side, const kvjit_codec_call* call, kvjit_error* error) {
  return guarded(error, [&] { return codec(program, side, call, false); });
}

kvjit_status kvjit_copy(kvjit_program* from, int from_side, kvjit_program* to, int to_side, const kvjit_copy_call* call,
                        kvjit_copy_report* report, kvjit_error* error) {
  return guarded(error, [&]() -> Result<void> {
    KV_CHECK(side_of(from, from_side));
    KV_CHECK(side_of(to, to_side));
    KV_TRY(c, read_struct(call, "call"));
    if (report) KV_CHECK(check_output(report, "report"));
    kvjit::CopyCall converted;
    KV_TRY(source, convert_tokens(c.from, "call->from", from_side));
    KV_TRY(target, convert_tokens(c.to, "call->to", to_side));
    converted.from = source, converted.to = target;
    converted.sequences = c.sequences, converted.tokens = c.tokens, converted.heads = c.heads;
    converted.record = static_cast<kv::CheckRecord*>(c.check);
    KV_TRY(kernel, copy_kernel(from, to, converted));
    KV_CHECK(from->program->copy(converted, *to->program, kernel->source, c.stream));
    if (report) write_struct(report, {0, static_cast<int>(kernel->kind), from->intern(kernel->source.name)});
    return {};
  });
}

kvjit_status kvjit_shift(kvjit_program* program, int side, const kvjit_shift_call* call, kvjit_error* error) {
  return guarded(error, [&]() -> Result<void> {
    KV_CHECK(side_of(program, side));
    KV_TRY(c, read_struct(call, "call"));
    kvjit::ShiftCall converted;
    KV_TRY(at, convert_tokens(c.cache, "call->cache", side));
    KV_TRY(rope, convert_rope(c.rope));
    converted.at = at, converted.rope = rope;
    converted.sequences = c.sequences, converted.tokens = c.tokens, converted.heads = c.heads;
    converted.record = static_cast<kv::CheckRecord*>(c.check);
    ServedSpec& spec = *program->spec;
    const bool by_tiles = is_bulk(converted) && kvjit::is_served_by_bulk(rope);
    KV_TRY(kernel, by_tiles ? kernel_of_side(spec, spec.operation_kernels.tile_shifts, side, &bulk_shift)
                            : kernel_of_side(spec, spec.operation_kernels.shifts, side, &kvjit::emit_shift));
    return program->program->shift(converted, *kernel, c.stream);
  });
}
