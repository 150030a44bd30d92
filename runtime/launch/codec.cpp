// The launches of the write path: quantize, and dequantize without slots. A call launches the bulk kernel of its
// element type if that kernel can serve it, else the kernel for any row.
// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include "runtime/base/sizes.hpp"
#include "runtime/launch/call_checks.hpp"
#include "runtime/launch/launch.hpp"
#include "runtime/launch/program.hpp"

namespace kvjit {
namespace {

// The bulk kernel if it can serve the call, else the call's own role.
Role role_of_codec(const ProgramSource& source, Role role, const kv::CodecArgs& args, std::size_t rows) {
  const bool is_k = role == Role::quantize_k || role == Role::dequantize_k;
  const bool is_writing = role == Role::quantize_k || role == Role::quantize_v;
  const Role tiles = bulk_role(is_writing, is_k, args.x_type);
  const bool is_served = is_writing || !args.keep_rotated;
  return source.kernels.count(tiles) && rows >= kLeastBulkRows && has_aligned_rows(args) && is_served ? tiles : role;
}

}  // namespace

Result<void> Program::check_codec(int side, bool is_writing, const kv::CodecArgs& args, const CacheCall& at) const {
  if (side != 0 && side != 1) return refuse(fmt::format("side {}; 0 (K) and 1 (V) are possible", side));
  KV_CHECK(check_counts(args.sequences, args.tokens, args.heads));
  KV_CHECK(check_row_type("x", args.x_type));
  const int element_bytes = args.x_type == kv::RowType::f32 ? 4 : 2;
  KV_CHECK(check_pointer("x", args.x.data, static_cast<unsigned>(element_bytes)));
  const SideInfo& info = side == 0 ? source_.k : source_.v;
  const int head_dim = side == 0 ? source_.head_dim : source_.head_dim_v;
  const RowsCheck x{"x",           args.x,     args.sequences,
                    args.tokens,   args.heads, args.keep_rotated && !is_writing ? info.stored_dim : head_dim,
                    element_bytes, !is_writing};
  KV_CHECK(check_rows(x));
  const Counts counts{args.sequences, args.tokens, args.heads};
  const char* const name = side == 0 ? "k" : "v";
  KV_CHECK(check_tokens(name, "slots", at, counts, is_writing));
  for (const Footprint& plane : footprints_of(source_, info, side_tokens(name, at, counts)))
    KV_CHECK(is_writing ? check_apart(plane, footprint_of(x)) : check_apart(footprint_of(x), plane));
  return {};
}

Role Program::codec_role(int side, bool is_writing, const kv::CodecArgs& args) const {
  const Role any = is_writing ? (side == 0 ? Role::quantize_k : Role::quantize_v)
                              : (side == 0 ? Role::dequantize_k : Role::dequantize_v);
  return role_of_codec(source_, any, args, product(1, args.sequences, args.tokens, args.heads));
}

Result<void> Program::codec(int side, bool is_writing, const kv::CodecArgs& args, const kv::PageTable& table,
                            const CheckBounds& check, Stream stream) const {
  const CacheCall at = cache_call(side, args, table, check);
  KV_CHECK(check_codec(side, is_writing, args, at));
  const Role role = codec_role(side, is_writing, args);
  KV_TRY(loaded, kernel(role));
  const Source& source = source_.kernels.at(role);
  kv::CodecArgs tiled_args = args;
  KV_TRY(grid, grid_of_tiles(source, tiled_args, context_->backend()->info().multiprocessors));
  KV_CHECK(check_cache(at, args.sequences, args.tokens, check.record, stream));
  if (source_.page_tokens == 0) return launch(*context_, source_, role, *loaded, grid, tiled_args, check, stream);
  const kv::PagedCodecArgs paged{tiled_args, args.slots ? kv::PageTable{} : table};
  return launch(*context_, source_, role, *loaded, grid, paged, check, stream);
}

Result<std::string> Program::bounded_codec(Role role, kv::BoundedCodecArgs args, kv::CheckRecord* record,
                                           Stream stream) const {
  KV_TRY(loaded, kernel(role));
  KV_TRY(grid, grid_of_tiles(source_.kernels.at(role), args, context_->backend()->info().multiprocessors));
  CheckBounds check;
  check.record = record;
  KV_CHECK(launch(*context_, source_, role, *loaded, grid, args, check, stream));
  return loaded->name;
}

Result<void> Program::append_new_rows(const AttentionCall& call, Stream stream, LaunchReport& report) const {
  for (int side = 0; side < 2; ++side) {
    kv::BoundedCodecArgs args{};
    args.x = side == 0 ? call.new_k : call.new_v;
    args.x_type = call.new_type;
    args.side = side == 0 ? call.k : call.v;
    args.table = side == 0 ? call.k_table : call.v_table;
    args.tensor_scale = side == 0 ? call.k_tensor_scale : call.v_tensor_scale;
    args.sequences = call.sequences, args.tokens = source_.query_length, args.heads = call.kv_heads;
    args.lengths = call.lengths, args.most = call.tokens;
    args.first_token = call.lengths ? 0 : call.tokens - source_.query_length;
    KV_TRY(name, bounded_codec(side == 0 ? Role::append_k : Role::append_v, args, call.check.record, stream));
    report.kernels.push_back(name);
  }
  return {};
}

Result<void> Program::quantize(int side, const kv::CodecArgs& args, Stream stream, const kv::PageTable& table,
                               const CheckBounds& check) const {
  return codec(side, true, args, table, check, stream);
}

Result<void> Program::dequantize(int side, const kv::CodecArgs& args, Stream stream, const kv::PageTable& table,
                                 const CheckBounds& check) const {
  if (args.slots) return refuse("slots for dequantize; rows by slots are read by Program::by_slots");
  return codec(side, false, args, table, check, stream);
}

}  // namespace kvjit
