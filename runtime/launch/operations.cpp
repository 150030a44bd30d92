// The launches of operations on caches: copies, shifts to other rotary positions, quantize and dequantize by slots,
// quantize with rotary positions. Their kernels are generated on request and passed in by the caller.
// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/base/sizes.hpp"
#include "runtime/launch/call_checks.hpp"
#include "runtime/launch/launch.hpp"
#include "runtime/launch/program.hpp"
#include "runtime/launch/rope.hpp"

namespace kvjit {
namespace {

// Blocks for each multiprocessor, at most, of kernels whose warps loop over rows.
constexpr int kBlocksEach = 8;

// Drops the page table of tokens that have slots: a slot holds its page number, so kernels take no table beside slots.
kv::CacheTokens without_unused_table(kv::CacheTokens tokens) {
  if (tokens.slots) tokens.table = {};
  return tokens;
}

Result<void> check_rope(const kv::RopeArgs& rope, int head_dim) {
  if (rope.dims < 2 || rope.dims % 2 != 0 || rope.dims > 2 * kv::kMostRopePairs)
    return refuse(
        fmt::format("rope.dims {}; even numbers from 2 to {} are possible", rope.dims, 2 * kv::kMostRopePairs));
  if (rope.first < 0 || rope.first > head_dim - rope.dims)
    return refuse(fmt::format("rope rotates values {} to {} of heads of {}", rope.first,
                              static_cast<long long>(rope.first) + rope.dims - 1, head_dim));
  if (rope.pairs != kv::RopePairs::neighbours && rope.pairs != kv::RopePairs::halves)
    return refuse(fmt::format("rope.pairs {}; neighbours (0) and halves (1) are possible", int(rope.pairs)));
  if (!std::isnormal(rope.magnitude))
    return refuse(fmt::format("rope.magnitude {}; a float of 1.2e-38 to 3.4e38 is needed", rope.magnitude));
  for (int i = 0; i < rope.dims / 2; ++i)
    if (!(rope.frequencies[i] >= 0 && rope.frequencies[i] < 0x1p31))
      return refuse(
          fmt::format("pair {} rotates by {} a position; a number from 0 on is needed", i, rope.frequencies[i]));
  if (rope.positions) KV_CHECK(check_pointer("rope.positions", rope.positions, 4));
  if (rope.factors) KV_CHECK(check_pointer("rope.factors", rope.factors, 4));
  return {};
}

Result<void> check_served_by_bulk(const Source& kernel, const kv::RopeArgs& rope) {
  if (is_served_by_bulk(rope)) return {};
  return refuse(kernel.name + " rotates neighbours from an even value on, or halves of 64 or 128 from a multiple on");
}

}  // namespace

SideTokens Program::side_tokens(const char* name, const CacheCall& at, const Counts& counts) const {
  const kv::CacheTokens& tokens = at.tokens;
  SideTokens rows{name, tokens.side, counts.sequences, counts.heads, tokens.first_token, counts.tokens};
  if (tokens.slots) rows.sequences = rows.tokens = 1, rows.first = 0;
  if (source_.page_tokens > 0 && source_.checks)
    rows.pages = std::max({at.pool_pages, tokens.slots ? ceil_div(at.slot_count, source_.page_tokens) : 0, 1LL});
  return rows;
}

Result<void> Program::check_tokens(const char* name, const char* slots, const CacheCall& at, const Counts& counts,
                                   bool is_written) const {
  if (at.side != 0 && at.side != 1) return refuse(fmt::format("side {}; 0 (K) and 1 (V) are possible", at.side));
  const SideInfo& info = at.side == 0 ? source_.k : source_.v;
  KV_CHECK(check_tensor_scale(info, name, at.tokens.tensor_scale));
  KV_CHECK(check_side(source_, info, name, at.tokens.side, counts.heads));
  KV_CHECK(check_table(source_, name, at.tokens.table, !at.tokens.slots));
  if (at.tokens.slots) KV_CHECK(check_slots(slots, at.tokens.slots, at.tokens.slot_type));
  KV_CHECK(check_first_token(at.tokens.slots ? 0 : at.tokens.first_token, counts.tokens));
  SideTokens rows = side_tokens(name, at, counts);
  // A sequence has pages of its own for the tokens that a call writes.
  if (source_.page_tokens > 0 && !at.tokens.slots)
    rows.pages = std::max(rows.pages, ceil_div(counts.tokens, source_.page_tokens));
  KV_CHECK(check_side_memory(source_, info, rows, is_written));
  if (!at.tokens.slots || source_.page_tokens > 0 || counts.tokens == 1) return {};
  rows.heads = 1, rows.tokens = 2;  // any two slots: heads and tokens may be nested in either way
  return check_side_memory(source_, info, rows, is_written);
}

template <class Args>
Result<void> Program::launch_operation(const Source& kernel, Grid grid, const Args& args, kv::CheckRecord* record,
                                       Stream stream) const {
  KV_TRY(loaded, context_->get(kernel));
  return kernel.args_bytes == static_cast<int>(sizeof(kv::Checked<Args>))
             ? launch(*context_, kernel, loaded, grid, kv::Checked<Args>{args, record}, stream)
             : launch(*context_, kernel, loaded, grid, args, stream);
}

int Program::alignment_of(const CopyCall& call, const Program& from, const Program& to) {
  unsigned long long all = kVectorAlignment;
  const auto add = [&](const CacheCall& at, const ProgramSource& source) {
    const kv::CacheSide& side = at.tokens.side;
    const SideInfo& info = at.side == 0 ? source.k : source.v;
    const bool has_scales = source.is_planar() && info.scale_row_bytes > 0;
    all |= reinterpret_cast<std::uintptr_t>(side.codes);
    for (const long long stride : {side.codes_sequence_stride, side.codes_head_stride, side.codes_token_stride})
      all |= static_cast<unsigned long long>(stride);
    if (!has_scales) return;
    all |= reinterpret_cast<std::uintptr_t>(side.scales);
    for (const long long stride : {side.scales_sequence_stride, side.scales_head_stride})
      all |= static_cast<unsigned long long>(stride);
  };
  add(call.from, from.source_);
  add(call.to, to.source_);
  return static_cast<int>(all & -all);
}

Result<void> Program::copy(const CopyCall& call, const Program& to, const Source& kernel, Stream stream) const {
  if (context_ != to.context_) return refuse("a copy between programs of two contexts; both must have one");
  KV_CHECK(check_counts(call.sequences, call.tokens, call.heads));
  const Counts counts{call.sequences, call.tokens, call.heads};
  KV_CHECK(check_tokens("from", "from.slots", call.from, counts, false));
  KV_CHECK(to.check_tokens("to", "to.slots", call.to, counts, true));
  const bool is_known = !call.from.tokens.slots && !call.to.tokens.slots && source_.page_tokens == 0 &&
                        to.source_.page_tokens == 0;  // else device memory says which tokens the call copies
  if (is_known) {
    const SideInfo &read = call.from.side == 0 ? source_.k : source_.v,
                   &written = call.to.side == 0 ? to.source_.k : to.source_.v;
    const auto others = footprints_of(source_, read, side_tokens("from", call.from, counts));
    for (const Footprint& plane : footprints_of(to.source_, written, to.side_tokens("to", call.to, counts)))
      KV_CHECK(check_apart(plane, others));
  }
  kv::BulkCopyArgs args{};
  args.from = without_unused_table(call.from.tokens), args.to = without_unused_table(call.to.tokens);
  args.sequences = call.sequences, args.tokens = call.tokens, args.heads = call.heads;
  KV_TRY(grid, grid_of_tiles(kernel, args, context_->backend()->info().multiprocessors));
  KV_CHECK(check_cache(call.from, call.sequences, call.tokens, call.record, stream));
  KV_CHECK(to.check_cache(call.to, call.sequences, call.tokens, call.record, stream));
  if (kernel.tiles > 0) return launch_operation(kernel, grid, args, call.record, stream);
  return launch_operation(kernel, grid, static_cast<const kv::CopyArgs&>(args), call.record, stream);
}

Result<void> Program::shift(const ShiftCall& call, const Source& kernel, Stream stream) const {
  KV_CHECK(check_counts(call.sequences, call.tokens, call.heads));
  KV_CHECK(
      check_tokens(call.at.side == 0 ? "k" : "v", "slots", call.at, {call.sequences, call.tokens, call.heads}, true));
  KV_CHECK(check_rope(call.rope, call.at.side == 0 ? source_.head_dim : source_.head_dim_v));
  if (kernel.tiles > 0) KV_CHECK(check_served_by_bulk(kernel, call.rope));
  const int multiprocessors = std::max(context_->backend()->info().multiprocessors, 1);
  kv::BulkShiftArgs args{};
  args.at = without_unused_table(call.at.tokens), args.rope = call.rope;
  args.sequences = call.sequences, args.tokens = call.tokens, args.heads = call.heads;
  KV_TRY(grid, grid_of_tiles(kernel, args, multiprocessors));
  KV_CHECK(check_cache(call.at, call.sequences, call.tokens, call.record, stream));
  if (kernel.tiles > 0) return launch_operation(kernel, grid, args, call.record, stream);
  grid.x = std::min(grid.x, static_cast<unsigned>(multiprocessors * kBlocksEach));
  args.blocks = static_cast<int>(grid.x);
  return launch_operation(kernel, grid, static_cast<const kv::ShiftArgs&>(args), call.record, stream);
}

Result<void> Program::by_slots(int side, bool is_writing, const kv::CodecArgs& args, const SlotNumbers& slots,
                               const Source& kernel, Stream stream, const CheckBounds& check) const {
  if (args.slots || args.first_token != 0) return refuse("slots twice, or a first token beside slots");
  KV_CHECK(check_slots("slots", slots.slots, slots.type));
  const CacheCall at = cache_call(side, args, {}, check, slots);
  KV_CHECK(check_codec(side, is_writing, args, at));
  kv::IndexedCodecArgs indexed{{args, {}}, slots.slots};
  KV_TRY(grid, grid_of_tiles(kernel, indexed, context_->backend()->info().multiprocessors));
  KV_CHECK(check_cache(at, args.sequences, args.tokens, check.record, stream));
  return launch_operation(kernel, grid, indexed, check.record, stream);
}

Result<void> Program::quantize_rope(int side, const kv::CodecArgs& args, const kv::RopeArgs& rope, const Source& kernel,
                                    Stream stream, const kv::PageTable& table, const CheckBounds& check,
                                    const SlotNumbers& slots) const {
  const CacheCall at = cache_call(side, args, table, check, slots);
  KV_CHECK(check_codec(side, true, args, at));
  KV_CHECK(check_rope(rope, side == 0 ? source_.head_dim : source_.head_dim_v));
  if (kernel.tiles > 0) KV_CHECK(check_served_by_bulk(kernel, rope));
  if (kernel.tiles > 0 && !has_aligned_rows(args)) return refuse(kernel.name + " reads rows that begin at 16 bytes");
  const int multiprocessors = std::max(context_->backend()->info().multiprocessors, 1);
  kv::RopedCodecArgs roped{
      {{args, without_unused_table(at.tokens).table}, at.tokens.slots}, at.tokens.slot_type, 0, rope};
  KV_TRY(grid, grid_of_tiles(kernel, roped, multiprocessors));
  KV_CHECK(check_cache(at, args.sequences, args.tokens, check.record, stream));
  if (kernel.tiles == 0) grid.x = std::min(grid.x, static_cast<unsigned>(multiprocessors * kBlocksEach));
  roped.blocks = static_cast<int>(grid.x);
  return launch_operation(kernel, grid, roped, check.record, stream);
}

}  // namespace kvjit
