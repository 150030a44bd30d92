// Prepares and times the calls of operations: see bench_operations.hpp.
// SPDX-License-Identifier: MIT
#include "tools/bench/bench_operations.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "generator/kernels/operations/operations.hpp"
#include "runtime/launch/rope.hpp"
#include "tools/verify/harness_data.hpp"

namespace kvjit {

using namespace harness;

Result<std::vector<OperationTime>> time_operations(const std::shared_ptr<Context>& context, const Registry& registry,
                                                   const std::shared_ptr<Program>& program, const Problem& problem,
                                                   const KernelHarness& harness, DevicePointer x, int repeats) {
  const std::shared_ptr<Backend>& backend = context->backend();
  const CacheShape& shape = harness.shape();
  const ProgramSource& source = program->source();
  const auto tokens = static_cast<int>(shape.tokens);
  const double rows = double(shape.tokens) * shape.kv_heads, numbers = 2.0 * problem.head_dim;
  const auto stored = [&](int side) {
    const SideInfo& info = side == 0 ? source.k : source.v;
    return double(source.is_planar() ? info.code_row_bytes + info.scale_row_bytes : info.row_bytes);
  };
  std::vector<OperationTime> times;
  const auto time = [&](std::string what, double bytes, const auto& call) -> Result<void> {
    KV_TRY(timing, backend->time([&](Stream stream, int) { return call(stream); }, repeats, 1));
    times.push_back({std::move(what), bytes * rows, timing});
    return {};
  };

  std::vector<int> order(static_cast<std::size_t>(tokens));
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), std::mt19937(1));  // NOLINT(cert-msc51-cpp): every run has the same order
  KV_TRY(slots, uploaded(backend, {reinterpret_cast<const std::uint8_t*>(order.data()), order.size() * sizeof(int)}));
  Buffer table_memory;
  KV_TRY(table, harness.upload_table(0, {}, table_memory));
  kv::CodecArgs codec{};
  const long long token = static_cast<long long>(shape.kv_heads) * problem.head_dim;
  codec.x = {device_data(x), shape.tokens * token, token, problem.head_dim};
  codec.x_type = kv::RowType::f16;
  codec.side = harness.cache(0);
  codec.sequences = 1, codec.tokens = tokens, codec.heads = shape.kv_heads, codec.tensor_scale = 1;
  const SlotNumbers numbered{device_data(slots.pointer()), kv::SlotType::i32};
  for (const bool is_writing : {false, true}) {
    if (source.page_tokens > 0) break;  // by_slots takes slots of caches without pages
    KV_TRY(kernel, make_by_slots(problem, program->codec_role(0, is_writing, codec), numbered.type, registry));
    KV_CHECK(time(is_writing ? "scatter" : "gather", stored(0) + numbers,
                  [&](Stream s) { return program->by_slots(0, is_writing, codec, numbered, kernel, s); }));
  }

  CopyCall copy;
  copy.tokens = tokens, copy.heads = shape.kv_heads;
  copy.from.tokens.side = harness.cache(0), copy.from.tokens.table = table;
  copy.from.tokens.tensor_scale = copy.to.tokens.tensor_scale = 1;
  for (const int to : {0, 1}) {
    Buffer to_memory;
    KV_TRY(to_table, harness.upload_table(to, {}, to_memory));
    copy.to.side = to;
    copy.to.tokens.side = harness.cache(to, 1), copy.to.tokens.table = to_table;
    KV_TRY(plan, plan_copy(side_plan(problem, 0), side_plan(problem, to), true,
                           Program::alignment_of(copy, *program, *program), registry));
    const Source kernel = emit_bulk_copy(plan, registry).value_or(emit_copy(plan, registry));
    KV_CHECK(time(plan.kind == CopyKind::bytes ? "copy" : "to " + source.v.format, stored(0) + stored(to),
                  [&](Stream s) { return program->copy(copy, *program, kernel, s); }));
    if (problem.k.name == problem.v.name) break;
  }

  Rope rope;
  rope.pairs = kv::RopePairs::halves, rope.dims = std::min(problem.head_dim, 2 * kv::kMostRopePairs);
  KV_TRY(args, rope_args(rope));
  args.position = 3;
  const CodecPlan side = side_plan(problem, 0);
  const Source writer = emit_quantize_rope_bulk(side, registry).value_or(emit_quantize_rope(side, registry));
  KV_CHECK(time("quantize, rope", stored(0) + numbers,
                [&](Stream s) { return program->quantize_rope(0, codec, args, writer, s, table); }));
  ShiftCall shift;
  shift.at = copy.from, shift.tokens = tokens, shift.heads = shape.kv_heads, shift.rope = args;
  const Source shifter = emit_shift_bulk(side, registry).value_or(emit_shift(side, registry));
  KV_CHECK(time("shift", 2 * stored(0), [&](Stream s) { return program->shift(shift, shifter, s); }));
  return times;
}

}  // namespace kvjit
