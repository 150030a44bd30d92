// The launch of one attention call. It takes up to five launches, in this order:
//
//   check        checked programs: checks lengths and page tables on the device
//   rotate_q     if K is rotated and the kernel does not rotate Q itself
//   decode       attention; or `prefill` for many query rows (prefill.cpp); or `reference`, which never rotates
//   merge        if `decode` does not merge its KV splits itself (tile_schedule.hpp)
//   rotate_out   if V is rotated and neither `decode` nor `merge` rotates the output back
//
// A fused program needs `decode` only.
// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <initializer_list>
#include <limits>
#include <numbers>
#include <utility>
#include <vector>

#include "runtime/launch/call_checks.hpp"
#include "runtime/launch/kv_checks.hpp"
#include "runtime/launch/launch.hpp"
#include "runtime/launch/prefill.hpp"
#include "runtime/launch/program.hpp"
#include "runtime/launch/tile_schedule.hpp"
#include "runtime/launch/workspace.hpp"

namespace kvjit {
namespace {

// Largest y and z of a grid (CUDA programming guide, technical specifications).
constexpr int kMostGridYZ = 65535;

// Rows of `row` elements for every query and query head, without gaps.
kv::Rows dense_rows(const ProgramSource& source, const AttentionCall& call, long long row, DevicePointer data) {
  const long long heads = q_heads(source, call);
  return {reinterpret_cast<void*>(data), queries_of(source, call) * heads * row, heads * row, row};
}

double softmax_scale(const ProgramSource& source, const AttentionCall& call) {
  return call.scale == 0 ? 1 / std::sqrt(static_cast<double>(source.head_dim)) : call.scale;
}
// The factor of the scores for powers of 2.
double scale_log2(const ProgramSource& source, const AttentionCall& call) {
  return softmax_scale(source, call) * std::numbers::log2e * call.k_tensor_scale;
}

// The memory of queries, outputs, new tokens and caches: it must fit 64 bits, and what the call writes must be apart
// from the rest.
Result<void> check_tensors(const ProgramSource& source, const AttentionCall& call, bool appends) {
  const long long heads = q_heads(source, call), queries = queries_of(source, call);
  const int head_dim = source.head_dim, head_dim_v = source.head_dim_v;
  const auto q_bytes = static_cast<int>(wide_element_bytes(source.q_type)),
             out_bytes = static_cast<int>(wide_element_bytes(source.out_type));
  const long long sequences = call.query_starts ? 1 : call.sequences, rows = query_rows(source, call) / sequences;
  const RowsCheck q{"q", call.q, sequences, rows, heads, head_dim, q_bytes, false},
      out{"out", call.out, sequences, rows, heads, head_dim_v, out_bytes, true};
  KV_CHECK(check_rows(q));
  KV_CHECK(check_rows(out));
  std::vector<Footprint> read, written, caches;
  read.reserve(3), written.reserve(2), caches.reserve(4);
  read.push_back(footprint_of(q)), written.push_back(footprint_of(out));
  if (appends) {
    const int bytes = call.new_type == kv::RowType::f32 ? 4 : 2;
    const RowsCheck new_k{"new_k", call.new_k, call.sequences, queries, call.kv_heads, head_dim, bytes, false},
        new_v{"new_v", call.new_v, call.sequences, queries, call.kv_heads, head_dim_v, bytes, false};
    for (const RowsCheck* rows : {&new_k, &new_v}) {
      KV_CHECK(check_rows(*rows));
      read.push_back(footprint_of(*rows));
    }
  }
  if (source.features.lse) {
    const Wide bytes = Wide{sizeof(float)} * query_rows(source, call) * heads;
    written.emplace_back("lse", call.features.lse, bytes, 0, std::initializer_list<Dimension>{});
    KV_CHECK(check_apart(written[1], written[0]));
  }
  // `lengths` are in device memory: any may be shorter than `tokens`, so only the new tokens count.
  const long long tokens = call.lengths ? std::min<long long>(queries, call.tokens) : call.tokens;
  const auto add_cache = [&](const char* name, const SideInfo& info, const kv::CacheSide& side,
                             long long pool_pages) -> Result<void> {
    SideTokens side_rows{name, side, call.sequences, call.kv_heads, 0, tokens};
    if (source.page_tokens > 0) side_rows.pages = ceil_div(tokens, source.page_tokens);
    KV_CHECK(check_side_memory(source, info, side_rows, appends));
    side_rows.pages = source.checks ? std::max(pool_pages, 1LL) : 1;
    for (Footprint& plane : footprints_of(source, info, side_rows)) caches.push_back(std::move(plane));
    return {};
  };
  KV_CHECK(add_cache("k", source.k, call.k, call.check.k_pages));
  KV_CHECK(add_cache("v", source.v, call.v, call.check.v_pages));
  for (const Footprint& one : written) {
    KV_CHECK(check_apart(one, read));
    KV_CHECK(check_apart(one, caches));
  }
  for (std::size_t i = 0; appends && i < caches.size(); ++i) KV_CHECK(check_apart(caches[i], read));
  return {};
}

// The queries of a call. `queries` of a program with a fixed number may be left 0.
Result<void> check_queries(const ProgramSource& source, const AttentionCall& call) {
  if (!source.varlen) {
    if (call.queries != 0 && call.queries != source.query_length)
      return refuse(fmt::format("{} queries; program {} has {}: attention.query_length = \"any\" serves any number",
                                call.queries, source.id, source.query_length));
    if (call.query_starts)
      return refuse(
          fmt::format("query_starts is given to program {}, which has {} queries in each sequence: "
                      "attention.query_length = \"any\" serves ragged batches",
                      source.id, source.query_length));
    return {};
  }
  if (!call.query_starts) return {};
  if (call.query_rows < 1 || call.query_rows > std::numeric_limits<int>::max())
    return refuse(fmt::format("{} rows of queries in a ragged batch; 1 to {} are possible", call.query_rows,
                              std::numeric_limits<int>::max()));
  return check_pointer("query_starts", call.query_starts, alignof(int));
}

// V whose rows are the first channels of K's (v.in_keys) is at K's address, by K's strides and page table.
Result<void> check_in_keys(const ProgramSource& source, const AttentionCall& call) {
  if (!source.values_in_keys) return {};
  const kv::CacheSide &k = call.k, &v = call.v;
  const bool has_scales = source.is_planar() && source.v.scale_row_bytes > 0;
  const bool are_codes = v.codes == k.codes && v.codes_sequence_stride == k.codes_sequence_stride &&
                         v.codes_head_stride == k.codes_head_stride && v.codes_token_stride == k.codes_token_stride;
  const bool are_scales = v.scales == k.scales && v.scales_sequence_stride == k.scales_sequence_stride &&
                          v.scales_head_stride == k.scales_head_stride &&
                          v.scales_token_stride == k.scales_token_stride;
  if (are_codes && (are_scales || !has_scales) && call.v_table.pages == call.k_table.pages &&
      call.v_table.row_stride == call.k_table.row_stride)
    return {};
  return refuse(
      fmt::format("v: another address, stride or page table than k's; {} has V in K's rows (v.in_keys)", source.id));
}

Result<void> check_call(const ProgramSource& source, const AttentionCall& call, const Workspace& layout,
                        DevicePointer workspace) {
  KV_CHECK(check_counts(call.sequences, call.tokens, call.kv_heads));
  if (std::max<long long>(call.sequences, scheduler_heads(source, call)) > kMostGridYZ)
    return refuse(fmt::format("{} sequences of {} heads; at most {} of either fit a launch", call.sequences,
                              scheduler_heads(source, call), kMostGridYZ));
  if (call.blocks < 0 || call.blocks > kMostBlocks)
    return refuse(fmt::format("{} blocks; 0 (chosen) to {} are possible", call.blocks, kMostBlocks));
  constexpr int kMostTokens = 1 << 30;  // kernels compute token numbers up to a few tiles past the end in ints
  if (call.tokens > kMostTokens)
    return refuse(fmt::format("{} tokens; at most {} are possible", call.tokens, kMostTokens));
  if (tiles(source, call) > std::numeric_limits<int>::max())
    return refuse(fmt::format("{} tiles of {} tokens in one call; at most {} are possible", tiles(source, call),
                              source.tile_tokens, std::numeric_limits<int>::max()));
  KV_CHECK(check_tensor_scale(source.k, "k", call.k_tensor_scale));
  KV_CHECK(check_tensor_scale(source.v, "v", call.v_tensor_scale));
  if (!std::isfinite(call.scale) || call.scale < 0)
    return refuse(fmt::format("scale {}; a positive number, or 0 for 1/sqrt({})", call.scale, source.head_dim));
  KV_CHECK(check_factor("scale", scale_log2(source, call),
                        "scale * log2(e) * k_tensor_scale must be from 1.2e-38 to 3.4e38"));
  KV_CHECK(check_pointer("q", call.q.data, static_cast<unsigned>(wide_element_bytes(source.q_type))));
  KV_CHECK(check_pointer("out", call.out.data, static_cast<unsigned>(wide_element_bytes(source.out_type))));
  KV_CHECK(check_side(source, source.k, "k", call.k, call.kv_heads));
  // V in K's rows has their strides: those of V's own rows may be smaller.
  KV_CHECK(check_side(source, source.values_in_keys ? source.k : source.v, "v", call.v, call.kv_heads));
  KV_CHECK(check_token_heads(source, source.k, "k", call.k, call.kv_heads));
  KV_CHECK(check_token_heads(source, source.v, "v", call.v, call.kv_heads));
  KV_CHECK(check_table(source, "k", call.k_table, true));
  KV_CHECK(check_table(source, "v", call.v_table, true));
  KV_CHECK(check_in_keys(source, call));
  KV_CHECK(check_queries(source, call));
  if (call.lengths) KV_CHECK(check_pointer("lengths", call.lengths, alignof(int)));
  if (layout.bytes == kTooMuch) return refuse("the workspace of this call does not fit 64 bits");
  if (layout.bytes != 0) KV_CHECK(check_pointer("workspace", reinterpret_cast<void*>(workspace), kVectorAlignment));
  return {};
}

}  // namespace

std::size_t Program::workspace_bytes(const AttentionCall& call) const {
  const DeviceInfo& device = context_->backend()->info();
  std::size_t bytes = lay_out(source_, device, call).bytes;
  if (const auto takes_two = takes_two_passes(source_, device, call); takes_two && *takes_two)
    bytes = std::max(bytes, lay_out_context_chunks(source_, device, call).bytes);
  if (buckets_.empty()) return bytes;
  if (const auto taken = buckets_of(&call))
    for (const BucketLengths& one : *taken) bytes = std::max(bytes, one.bucket->workspace_bytes(call));
  return bytes;
}

kv::CheckArgs Program::check_args(const AttentionCall& call) const {
  kv::CheckArgs checked{};
  checked.lengths = call.lengths, checked.tokens = call.tokens, checked.sequences = call.sequences;
  checked.seen = seen_args(source_, call);
  checked.query_starts = call.query_starts, checked.query_rows = call.query_rows;
  if (source_.page_tokens == 0) return checked;
  checked.tables[0] = {call.k_table, call.check.k_pages, kv::CheckedArray::k_pages};
  checked.tables[1] = {call.v_table, call.check.v_pages, kv::CheckedArray::v_pages};
  return checked;
}

// The common code of attention and reference. readable: launches `reference` in place of `decode` and `merge`. lengths:
// of run-time query lengths, those that this launch serves.
Result<LaunchReport> Program::run(bool readable, const AttentionCall& call, DevicePointer workspace, Stream stream,
                                  const QueryLengths& lengths, const kv::ContextChunkArgs* chunk) const {
  const DeviceInfo& device = context_->backend()->info();
  const Workspace layout = lay_out(source_, device, call);
  if (!chunk) {
    KV_CHECK(check_call(source_, call, layout, workspace));
    KV_CHECK(check_features(source_, call));
    if (!readable) KV_CHECK(check_new_rows(source_, call));
    KV_CHECK(check_tensors(source_, call, !readable && source_.append));
  }
  KV_TRY(in_two_passes, readable ? Result<bool>(false) : takes_two_passes(source_, device, call));
  KV_TRY(by_prefill, readable ? Result<bool>(false) : takes_prefill(source_, device, call));
  const bool rotates_q =
      in_two_passes ? source_.k.stays_rotated : source_.k.is_transformed && (readable || !source_.rotates_queries);
  const bool rotates_out =
      in_two_passes ? source_.v.stays_rotated : source_.v.is_transformed && (readable || !source_.rotates_output);
  const bool is_paged = source_.page_tokens > 0;

  LaunchReport report;
  if (source_.kernels.count(Role::check) != 0) {
    KV_CHECK(launch_check(check_args(call), call.check, stream));
    report.kernels.push_back(record(Role::check)->name);
  }
  const auto launch_step = [&](Role role, Grid grid, const auto& args) -> Result<void> {
    KV_TRY(record, kernel(role));
    KV_CHECK(launch(*context_, source_.kernels.at(role), *record, grid, args, stream));
    report.kernels.push_back(record->name);
    return {};
  };
  const auto step = [&]<class Args>(Role role, Grid grid, const Args& args) -> Result<void> {
    return source_.checks ? launch_step(role, grid, kv::Checked<Args>{args, call.check.record})
                          : launch_step(role, grid, args);
  };
  // Featured<> is the outermost wrapper of the arguments: kernels find features by the type of their arguments.
  const auto step_featured = [&]<class Args>(Role role, Grid grid, const Args& args) -> Result<void> {
    kv::FeatureArgs features = call.features;
    if (call.query_starts) features.mask_sequence_stride = features.packed_sequence_stride = 0;
    if (call.leaves_sinks) features.sinks = nullptr;
    if (!source_.features.any()) return step(role, grid, args);
    return source_.checks
               ? launch_step(role, grid, kv::Featured<kv::Checked<Args>>{{args, call.check.record}, features})
               : launch_step(role, grid, kv::Featured<Args>{args, features});
  };
  // Varlen<> is the innermost wrapper.
  const auto step_attention = [&]<class Args>(Role role, Grid grid, const Args& args) -> Result<void> {
    if (!source_.varlen) return step_featured(role, grid, args);
    kv::VarlenArgs varlen{call.query_starts, call.queries, lengths.least, lengths.most, 0, {}, nullptr};
    if (by_prefill) {
      list_splits(source_, device, call, varlen);
      varlen.tickets = reinterpret_cast<kv::u32*>(workspace + kCounterBytes) - 1;
    }
    return step_featured(role, grid, kv::Varlen<Args>{args, varlen});
  };
  const auto rotate = [&](Role role, const kv::Rows& in, const kv::Rows& out) -> Result<void> {
    const auto heads = static_cast<int>(q_heads(source_, call));
    const int sequences = call.query_starts ? 1 : call.sequences,
              queries = static_cast<int>(query_rows(source_, call) / sequences);
    KV_TRY(grid, grid_of_rows(source_.kernels.at(role), product(1, sequences, queries, heads)));
    return step(role, grid, kv::RotateArgs{in, out, sequences, queries, heads});
  };

  if (source_.append && (in_two_passes || by_prefill)) KV_CHECK(append_new_rows(call, stream, report));
  kv::Rows q = call.q, out = call.out;
  const ContextChunks chunks = in_two_passes ? lay_out_context_chunks(source_, device, call) : ContextChunks{};
  if (rotates_q) {
    q = dense_rows(source_, call, source_.k.rotated_dim,
                   workspace + (in_two_passes ? chunks.rotated_q : layout.rotated_q));
    if (lengths.is_first) KV_CHECK(rotate(Role::rotate_q, call.q, q));
  }
  if (rotates_out)
    out = dense_rows(source_, call, source_.v.rotated_dim,
                     workspace + (in_two_passes ? chunks.unrotated_out : layout.unrotated_out));
  if (in_two_passes) {
    AttentionCall rotated = call;
    rotated.q = q, rotated.out = out, rotated.scale = softmax_scale(source_, call);
    KV_CHECK(run_two_passes(rotated, chunks, workspace, stream, lengths, report));
    if (rotates_out && lengths.is_last) KV_CHECK(rotate(Role::rotate_out, out, call.out));
    return finish_report(call, std::move(report));
  }

  kv::AttentionArgs args{};
  args.q = q;
  args.k = call.k;
  args.v = call.v;
  args.scheduler = make_schedule(source_, device, call);
  args.out = out;
  args.scale_log2 = static_cast<float>(scale_log2(source_, call));
  args.value_scale = call.v_tensor_scale;
  if (call.query_starts) args.q.sequence_stride = args.out.sequence_stride = out.sequence_stride = 0;
  const auto take_splits = [&] {
    args.split_counters = reinterpret_cast<kv::u32*>(workspace);
    args.partial = reinterpret_cast<float*>(workspace + layout.partial);
    args.partial_state = reinterpret_cast<float*>(workspace + layout.state);
  };
  const auto heads = static_cast<unsigned>(scheduler_heads(source_, call)),
             sequences = static_cast<unsigned>(call.sequences);
  if (readable) {
    const auto rows = static_cast<unsigned>(q_heads(source_, call) * queries_of(source_, call));
    args.scheduler.kv_heads = call.kv_heads;
    const Grid grid{rows, 1, sequences};
    KV_CHECK(is_paged ? step_attention(Role::reference, grid, kv::PagedAttentionArgs{args, call.k_table, call.v_table})
                      : step_attention(Role::reference, grid, args));
  } else if (by_prefill) {
    args.scheduler = prefill_schedule(source_, device, call);
    take_splits();
    const Grid grid{static_cast<unsigned>(args.scheduler.blocks), 1, 1};
    KV_CHECK(chunk      ? step_attention(Role::prefill, grid, kv::ContextChunkAttentionArgs{args, *chunk})
             : is_paged ? step_attention(Role::prefill, grid, kv::PagedAttentionArgs{args, call.k_table, call.v_table})
                        : step_attention(Role::prefill, grid, args));
  } else {
    const bool is_merged_apart = needs_merge_kernel(source_, device, call);
    take_splits();
    if (is_merged_apart) args.split_counters = nullptr;
    const Grid grid{static_cast<unsigned>(args.scheduler.blocks), 1, 1};
    const auto attend = [&]() -> Result<void> {
      if (!source_.append && is_paged)
        return step_attention(Role::decode, grid, kv::PagedAttentionArgs{args, call.k_table, call.v_table});
      if (!source_.append) return step_attention(Role::decode, grid, args);
      const kv::NewRows new_k{call.new_k, call.new_type, call.k_tensor_scale},
          new_v{call.new_v, call.new_type, call.v_tensor_scale};
      const kv::AppendArgs appending{args, new_k, new_v};
      return is_paged ? step_attention(Role::decode, grid, kv::PagedAppendArgs{appending, call.k_table, call.v_table})
                      : step_attention(Role::decode, grid, appending);
    };
    KV_CHECK(attend());
    if (is_merged_apart) {
      KV_TRY(rows, grid_of_rows(source_.kernels.at(Role::merge), static_cast<std::size_t>(source_.rows)));
      KV_CHECK(step_attention(Role::merge, Grid{rows.x, heads, sequences},
                              kv::MergeArgs{args.partial, args.partial_state, args.scheduler, out}));
    }
  }
  if (rotates_out && lengths.is_last) KV_CHECK(rotate(Role::rotate_out, out, call.out));
  report.blocks = readable ? 1 : args.scheduler.blocks;
  return finish_report(call, std::move(report));
}

Result<LaunchReport> Program::attention(const AttentionCall& call, DevicePointer workspace, Stream stream) const {
  return buckets_.empty() ? run(false, call, workspace, stream, {}) : run_buckets(call, workspace, stream);
}

Result<LaunchReport> Program::reference(const AttentionCall& call, DevicePointer workspace, Stream stream) const {
  return run(true, call, workspace, stream, {1, source_.query_length});
}

// If lengths are on the device, cache_bytes counts `tokens` for every sequence: the most that the call may read.
Result<LaunchReport> Program::finish_report(const AttentionCall& call, LaunchReport report) const {
  const auto row_bytes = [this](const SideInfo& side) {
    return source_.is_planar() ? side.code_row_bytes + side.scale_row_bytes : side.row_bytes;
  };
  report.k_reader = source_.k.format;
  report.v_reader = source_.v.format;
  if (source_.causal) report.features.emplace_back("causal");
  for (const std::string& name : source_.features.names())
    if (name != "sinks" || !call.leaves_sinks) report.features.push_back(name);
  report.cache_bytes = seen_tokens(source_, call) * call.kv_heads * call.sequences *
                       (row_bytes(source_.k) + (source_.values_in_keys ? 0 : row_bytes(source_.v)));
  return report;
}

}  // namespace kvjit
