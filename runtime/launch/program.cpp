// How the kernels of one attention call are laid out and launched.
// SPDX-License-Identifier: MIT
#include "runtime/launch/program.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "runtime/base/sizes.hpp"
#include "runtime/launch/call_checks.hpp"
#include "runtime/launch/kv_checks.hpp"
#include "runtime/launch/launch.hpp"

namespace kvjit {
namespace {

constexpr int kMostGridYZ = 65535;  // CUDA programming guide, technical specifications
constexpr long long kTilesBeforeCpuParts = 4;

// Where the pieces of a workspace start, from its base; in this order, behind the counters.
struct Workspace {
  std::size_t rotated_q = 0, partial = 0, state = 0, unrotated_out = 0, bytes = 0;
};

long long q_heads(const ProgramSource& source, const AttentionCall& call) {
  return static_cast<long long>(call.kv_heads) * source.q_heads_per_kv;
}
// What the line of work counts as heads: each KV head as often as its query rows take turns; heads that blocks take
// together as one.
long long pair_heads(const ProgramSource& source, const AttentionCall& call) {
  return static_cast<long long>(call.kv_heads) / std::max(source.token_heads, 1) * source.turns;
}
// At least 1, so that calls yet to be checked can be counted too.
long long pairs(const ProgramSource& source, const AttentionCall& call) {
  return std::max(call.sequences * pair_heads(source, call), 1ll);
}
// Of a sequence, that its queries see.
long long seen_tokens(const ProgramSource& source, const AttentionCall& call) {
  const long long most = source.features.most_seen(source.causal, source.query_length);
  return most < 0 ? call.tokens : std::min<long long>(most, call.tokens);
}
// Of all (sequence, KV head) pairs, at `tokens` each; a window may begin and end inside a tile.
long long tiles(const ProgramSource& source, const AttentionCall& call) {
  const long long tile = std::max(source.tile_tokens, 1), all = std::max(ceil_div(call.tokens, tile), 1ll);
  return std::min(all, ceil_div(seen_tokens(source, call), tile) + 1) * pairs(source, call);
}

int most_blocks(const ProgramSource& source, const DeviceFacts& device, const AttentionCall& call) {
  const long long most = std::clamp(tiles(source, call), 1ll, static_cast<long long>(kMostBlocks));
  long long wanted = call.blocks;
  if (wanted <= 0 && device.is_gpu)
    wanted = device.multiprocessors;
  else if (wanted <= 0)  // few, but so that some pairs have parts
    wanted = tiles(source, call) > kTilesBeforeCpuParts * pairs(source, call) ? 2 * pairs(source, call) + 1
                                                                              : pairs(source, call);
  return static_cast<int>(std::clamp(wanted, 1ll, most));
}

// How many tiles a block of decode takes in so many microseconds of an H200, each of whose multiprocessors reads 33 KB
// in one. On the CPU as many as are said, so that calls there have seams or not, as it falls.
kv::u32 tiles_in(const ProgramSource& source, const DeviceFacts& device, double us, kv::u32 on_cpu) {
  const long long tile = source.tile_tokens * static_cast<long long>(source.k.row_bytes + source.v.row_bytes) *
                         std::max(source.token_heads, 1);
  return device.is_gpu ? static_cast<kv::u32>(us * 33e3 / static_cast<double>(std::max(tile, 1ll))) : on_cpu;
}

// Who does what if all sequences have `tokens`: without seams, where the longest share is no worse for it than by a
// seam (kernels/decode/tile_scheduler.cuh).
kv::WorkArgs even_work(const ProgramSource& source, const DeviceFacts& device, const AttentionCall& call) {
  kv::WorkArgs work{};
  work.tokens = call.tokens, work.sequences = call.sequences;
  work.kv_heads = static_cast<int>(pair_heads(source, call));
  work.blocks = most_blocks(source, device, call);
  const auto count = static_cast<kv::u32>(pairs(source, call)), blocks = static_cast<kv::u32>(work.blocks),
             all = static_cast<kv::u32>(tiles(source, call));
  work.room = all / count, work.share = all / blocks, work.longer = all % blocks;
  // kv4, 8 rows: 8 KV heads x 4096 and 4100 tokens with seams 7.4 and 12.5 us, 24 x 16400 24.9 with and 20.3 without; 3
  // x 4096 with 43 and 16 parts a pair 8.2 and 7.1.
  constexpr double kSeamUs = 7, kRoundUs = 1.2;
  work.pieces = blocks / count, work.whole = static_cast<kv::u32>(ceil_div(count, blocks));
  work.seam = tiles_in(source, device, kSeamUs, 1), work.round = tiles_in(source, device, kRoundUs, 0);
  // The memory is as busy without a sixteenth of the multiprocessors.
  const kv::u32 slack = std::max(work.seam, work.share / 16);
  if (work.pieces == 0 && work.whole * work.room <= work.share + slack) {
    work.share = work.whole * work.room, work.longer = 0;
    work.blocks = static_cast<int>(ceil_div(count, work.whole));
  }
  if (work.pieces == 0) return work;
  const auto few = static_cast<kv::u32>(ceil_div(work.room, kv::kPartsAtOnce));
  kv::u32 least = work.share + (work.longer > 0);
  if (few <= least + work.round) least = std::max(least, few);
  const kv::u32 unit = std::max(least, static_cast<kv::u32>(ceil_div(work.room, work.pieces)));
  if (unit > work.share + slack) return work;
  work.pieces = static_cast<kv::u32>(ceil_div(work.room, unit));
  work.room = work.pieces * unit, work.share = unit, work.longer = 0;
  work.blocks = static_cast<int>(work.pieces * count);
  return work;
}

// What kernels are told of it. With lengths on the device they find out themselves.
kv::WorkArgs share_work(const ProgramSource& source, const DeviceFacts& device, const AttentionCall& call) {
  kv::WorkArgs work = even_work(source, device, call);
  if (!call.lengths) return work;
  work.lengths = call.lengths;
  work.blocks = most_blocks(source, device, call);
  work.pieces = static_cast<kv::u32>(work.blocks / pairs(source, call));
  work.room = work.share = work.longer = 0;
  return work;
}

// Of a pair, at most.
long long parts(const kv::WorkArgs& even) {
  if (even.longer == 0 && even.share % even.room == 0) return 1;
  if (even.longer == 0 && even.room % even.share == 0) return even.room / even.share;
  return std::min<long long>(ceil_div(even.room, even.share) + 1, even.blocks);
}

// Whether parts of pairs go to a launch of `merge` instead of the last block of each. H200: a step, of 128 sums of a
// row and up to 16 parts, takes a warp 0.65 us (f16, head_dim_v 512); the launch 1.8 us (as long as 2 to 3 steps take:
// f16, 16 and 32 rows, 8 KV heads x 32768), and a microsecond more for each thousand of its blocks, which is an
// estimate: so many stand on the device at once.
bool leaves_parts(const ProgramSource& source, const DeviceFacts& device, const AttentionCall& call) {
  if (!source.finishes) return true;
  constexpr double kStepUs = 0.65, kLaunchUs = 1.8, kBlockUs = 0.001;
  if (source.merge_steps <= 1) return false;
  const long long most = parts(even_work(source, device, call));
  if (most == 1) return false;
  const auto steps = static_cast<double>(source.merge_steps * ceil_div(most, kv::kPartsAtOnce)),
             grid = static_cast<double>(pairs(source, call) * source.rows * ceil_div(source.v.inner_dim, 128));
  return kStepUs * steps > kLaunchUs + kBlockUs * grid;
}

Workspace lay_out(const ProgramSource& source, const AttentionCall& call, int blocks) {
  const auto dense = [&](const SideFacts& side) {
    return product(sizeof(float), call.sequences, source.query_length, q_heads(source, call), side.inner_dim);
  };
  // The readable kernel takes rows rotated by launches of their own, so the pieces for those are there for fused
  // programs too.
  const std::size_t slots =
      plus(product(1, call.sequences, pair_heads(source, call)), static_cast<std::size_t>(blocks));
  const std::size_t states = times(times(slots, source.rows), sizeof(float));
  Workspace pieces;
  std::size_t end = kCounterBytes;
  const auto place = [&end](std::size_t bytes) { return std::exchange(end, rounded(plus(end, bytes))); };
  pieces.rotated_q = place(source.k.is_transformed ? dense(source.k) : 0);
  pieces.partial = place(times(states, source.v.inner_dim));
  pieces.state = place(times(states, 2));
  pieces.unrotated_out = place(source.v.is_transformed ? dense(source.v) : 0);
  pieces.bytes = end;
  return pieces;
}

kv::Rows dense_rows(const ProgramSource& source, const AttentionCall& call, long long row, DevicePointer data) {
  const long long heads = q_heads(source, call);
  return {reinterpret_cast<void*>(data), source.query_length * heads * row, heads * row, row};
}

Result<void> check_call(const ProgramSource& source, const AttentionCall& call, const Workspace& pieces,
                        DevicePointer workspace) {
  KV_CHECK(check_counts(call.sequences, call.tokens, call.kv_heads));
  if (std::max<long long>(call.sequences, pair_heads(source, call)) > kMostGridYZ)
    return refuse(fmt::format("{} sequences of {} heads; at most {} of either fit a launch", call.sequences,
                              pair_heads(source, call), kMostGridYZ));
  if (call.blocks < 0 || call.blocks > kMostBlocks)
    return refuse(fmt::format("{} blocks; 0 (chosen) to {} are possible", call.blocks, kMostBlocks));
  constexpr int kMostTokens = 1 << 30;  // token numbers, a few tiles ahead, are ints in the kernels
  if (call.tokens > kMostTokens)
    return refuse(fmt::format("{} tokens; at most {} are possible", call.tokens, kMostTokens));
  if (tiles(source, call) > std::numeric_limits<int>::max())
    return refuse(fmt::format("{} tiles of {} tokens in one call; at most {} are possible", tiles(source, call),
                              source.tile_tokens, std::numeric_limits<int>::max()));
  if (!std::isfinite(call.scale) || call.scale < 0)
    return refuse(fmt::format("scale {}; a positive number, or 0 for 1/sqrt({})", call.scale, source.head_dim));
  KV_CHECK(check_tensor_scale(source.k, "k", call.k_tensor_scale));
  KV_CHECK(check_tensor_scale(source.v, "v", call.v_tensor_scale));
  KV_CHECK(check_pointer("q", call.q.data, static_cast<unsigned>(wide_element_bytes(source.q_type))));
  KV_CHECK(check_pointer("out", call.out.data, static_cast<unsigned>(wide_element_bytes(source.out_type))));
  KV_CHECK(check_side(source, source.k, "k", call.k, call.kv_heads));
  KV_CHECK(check_side(source, source.v, "v", call.v, call.kv_heads));
  KV_CHECK(check_token_heads(source, source.k, "k", call.k, call.kv_heads));
  KV_CHECK(check_token_heads(source, source.v, "v", call.v, call.kv_heads));
  KV_CHECK(check_table(source, "k", call.k_table, true));
  KV_CHECK(check_table(source, "v", call.v_table, true));
  if (call.lengths) KV_CHECK(check_pointer("lengths", call.lengths, alignof(int)));
  if (pieces.bytes == kTooMuch) return refuse("the workspace of this call does not fit 64 bits");
  if (pieces.bytes != 0) KV_CHECK(check_pointer("workspace", reinterpret_cast<void*>(workspace), kVectorAlignment));
  return {};
}

// The kernel for many rows that can serve a call, or the call's own role.
Role role_of_codec(const ProgramSource& source, Role role, const kv::CodecArgs& args, std::size_t rows) {
  const bool is_k = role == Role::quantize_k || role == Role::dequantize_k;
  const bool is_writing = role == Role::quantize_k || role == Role::quantize_v;
  const Role tiles = tile_role(is_writing, is_k, args.x_type);
  const bool is_served = is_writing || !args.keep_rotated;
  return source.kernels.count(tiles) && rows >= kManyRows && has_aligned_rows(args) && is_served ? tiles : role;
}

}  // namespace

Result<std::shared_ptr<Program>> Program::create(std::shared_ptr<Context> context, ProgramSource source,
                                                 std::stop_token stop) {
  return create(std::move(context), std::make_shared<const ProgramSource>(std::move(source)), std::move(stop));
}

Result<std::shared_ptr<Program>> Program::create(std::shared_ptr<Context> context,
                                                 std::shared_ptr<const ProgramSource> source, std::stop_token stop) {
  const auto program = std::make_shared<Program>(std::move(context), std::move(source));
  for (const Role role : program->roles_of_attention())
    if (program->source_.kernels.count(role)) KV_CHECK(program->kernel(role, stop));
  return program;
}

Result<const KernelRecord*> Program::kernel(Role role, std::stop_token stop) const {
  const std::lock_guard lock(mutex_);
  if (const auto known = kernels_.find(role); known != kernels_.end()) return &known->second;
  const auto source = source_.kernels.find(role);
  if (source == source_.kernels.end())
    return fail(Code::unsupported, fmt::format("program {} has no {} kernel", source_.id, to_string(role)));
  KV_TRY(record, context_->get(source->second, stop));
  return &kernels_.emplace(role, std::move(record)).first->second;
}

const KernelRecord* Program::record(Role role) const {
  const std::lock_guard lock(mutex_);
  const auto known = kernels_.find(role);
  return known == kernels_.end() ? nullptr : &known->second;
}

std::vector<Role> Program::loaded_roles() const {
  const std::lock_guard lock(mutex_);
  std::vector<Role> roles;
  for (const auto& [role, record] : kernels_) roles.push_back(role);
  return roles;
}

std::size_t Program::workspace_bytes(const AttentionCall& call) const {
  return lay_out(source_, call, most_blocks(source_, context_->backend()->facts(), call)).bytes;
}

// In launch order.
std::vector<Role> Program::roles_of_attention() const {
  std::vector<Role> roles;
  if (source_.checks) roles.push_back(Role::check);
  if (source_.k.is_transformed && !source_.rotates_queries) roles.push_back(Role::rotate_q);
  roles.push_back(Role::decode);
  if (!source_.finishes || source_.merge_steps > 1) roles.push_back(Role::merge);
  if (source_.v.is_transformed && !source_.rotates_output) roles.push_back(Role::rotate_out);
  return roles;
}

// attention and reference differ in the middle of the call; `readable` picks that middle, which never rotates.
Result<LaunchReport> Program::run(bool readable, const AttentionCall& call, DevicePointer workspace,
                                  Stream stream) const {
  const DeviceFacts& device = context_->backend()->facts();
  const Workspace pieces = lay_out(source_, call, most_blocks(source_, device, call));
  KV_CHECK(check_call(source_, call, pieces, workspace));
  KV_CHECK(check_features(source_, call));
  if (!readable) KV_CHECK(check_new_rows(source_, call));
  const bool rotates_q = source_.k.is_transformed && (readable || !source_.rotates_queries);
  const bool rotates_out = source_.v.is_transformed && (readable || !source_.rotates_output);
  const bool is_paged = source_.page_tokens > 0;

  LaunchReport report;
  if (source_.checks) {
    kv::CheckArgs checked{};
    checked.lengths = call.lengths, checked.tokens = call.tokens, checked.sequences = call.sequences;
    if (is_paged) {
      checked.tables[0] = {call.k_table, call.check.k_pages, kv::CheckedArray::k_pages};
      checked.tables[1] = {call.v_table, call.check.v_pages, kv::CheckedArray::v_pages};
    }
    KV_CHECK(launch_check(checked, call.check, stream));
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
  // Features are outermost: kernels ask for them by the type of their arguments.
  const auto step_featured = [&]<class Args>(Role role, Grid grid, const Args& args) -> Result<void> {
    kv::FeatureArgs features = call.features;
    if (call.leaves_sinks) features.sinks = nullptr;
    if (!source_.features.any()) return step(role, grid, args);
    return source_.checks
               ? launch_step(role, grid, kv::Featured<kv::Checked<Args>>{{args, call.check.record}, features})
               : launch_step(role, grid, kv::Featured<Args>{args, features});
  };
  const auto rotate = [&](Role role, const kv::Rows& in, const kv::Rows& out) -> Result<void> {
    const auto heads = static_cast<int>(q_heads(source_, call));
    KV_TRY(grid, grid_of_rows(source_.kernels.at(role), product(1, call.sequences, source_.query_length, heads)));
    return step(role, grid, kv::RotateArgs{in, out, call.sequences, source_.query_length, heads});
  };

  kv::Rows q = call.q, out = call.out;
  if (rotates_q) {
    q = dense_rows(source_, call, source_.k.inner_dim, workspace + pieces.rotated_q);
    KV_CHECK(rotate(Role::rotate_q, call.q, q));
  }
  if (rotates_out) out = dense_rows(source_, call, source_.v.inner_dim, workspace + pieces.unrotated_out);

  kv::AttentionArgs args{};
  args.q = q;
  args.k = call.k;
  args.v = call.v;
  args.work = share_work(source_, device, call);
  args.out = out;
  const double scale = call.scale == 0 ? 1 / std::sqrt(static_cast<double>(source_.head_dim)) : call.scale;
  args.scale_log2 = static_cast<float>(scale * std::numbers::log2e * call.k_tensor_scale);
  args.value_scale = call.v_tensor_scale;
  const auto heads = static_cast<unsigned>(pair_heads(source_, call)),
             sequences = static_cast<unsigned>(call.sequences);
  if (readable) {
    const auto rows = static_cast<unsigned>(q_heads(source_, call) * source_.query_length);
    args.work.kv_heads = call.kv_heads;
    const Grid grid{rows, 1, sequences};
    KV_CHECK(is_paged ? step_featured(Role::reference, grid, kv::PagedAttentionArgs{args, call.k_table, call.v_table})
                      : step_featured(Role::reference, grid, args));
  } else {
    const bool is_merged_apart = leaves_parts(source_, device, call);
    args.arrivals = is_merged_apart ? nullptr : reinterpret_cast<kv::u32*>(workspace);
    args.partial = reinterpret_cast<float*>(workspace + pieces.partial);
    args.partial_state = reinterpret_cast<float*>(workspace + pieces.state);
    const Grid grid{static_cast<unsigned>(args.work.blocks), 1, 1};
    const auto attend = [&]() -> Result<void> {
      if (!source_.appends && is_paged)
        return step_featured(Role::decode, grid, kv::PagedAttentionArgs{args, call.k_table, call.v_table});
      if (!source_.appends) return step_featured(Role::decode, grid, args);
      const kv::NewRows new_k{call.new_k, call.new_type, call.k_tensor_scale},
          new_v{call.new_v, call.new_type, call.v_tensor_scale};
      const kv::AppendArgs appending{args, new_k, new_v};
      return is_paged ? step_featured(Role::decode, grid, kv::PagedAppendArgs{appending, call.k_table, call.v_table})
                      : step_featured(Role::decode, grid, appending);
    };
    KV_CHECK(attend());
    if (is_merged_apart) {
      KV_TRY(rows, grid_of_rows(source_.kernels.at(Role::merge), static_cast<std::size_t>(source_.rows)));
      KV_CHECK(step_featured(Role::merge, Grid{rows.x, heads, sequences},
                             kv::MergeArgs{args.partial, args.partial_state, args.work, out}));
    }
  }
  if (rotates_out) KV_CHECK(rotate(Role::rotate_out, out, call.out));
  report.blocks = readable ? 1 : args.work.blocks;
  return finish_report(call, std::move(report));
}

Result<LaunchReport> Program::attention(const AttentionCall& call, DevicePointer workspace, Stream stream) const {
  return run(false, call, workspace, stream);
}

Result<LaunchReport> Program::reference(const AttentionCall& call, DevicePointer workspace, Stream stream) const {
  return run(true, call, workspace, stream);
}

// With device-side lengths the bytes are those of `tokens` for every sequence: the most that the call may
// read.
Result<LaunchReport> Program::finish_report(const AttentionCall& call, LaunchReport report) const {
  const auto row_bytes = [this](const SideFacts& side) {
    return source_.is_planar ? side.code_row_bytes + side.scale_row_bytes : side.row_bytes;
  };
  report.k_reader = source_.k.format;
  report.v_reader = source_.v.format;
  if (source_.causal) report.features.emplace_back("causal");
  for (const std::string& name : source_.features.names())
    if (name != "sinks" || !call.leaves_sinks) report.features.push_back(name);
  report.cache_bytes =
      seen_tokens(source_, call) * call.kv_heads * call.sequences * (row_bytes(source_.k) + row_bytes(source_.v));
  return report;
}

Result<void> Program::check_codec(int side, const kv::CodecArgs& args, const CacheCall& at) const {
  if (side != 0 && side != 1) return refuse(fmt::format("side {}; 0 (K) and 1 (V) are possible", side));
  KV_CHECK(check_counts(args.sequences, args.tokens, args.heads));
  KV_CHECK(check_row_type("x", args.x_type));
  KV_CHECK(check_pointer("x", args.x.data, args.x_type == kv::RowType::f32 ? 4 : 2));
  return check_tokens(side == 0 ? "k" : "v", "slots", at, args.heads);
}

Role Program::codec_role(int side, bool is_writing, const kv::CodecArgs& args) const {
  const Role any = is_writing ? (side == 0 ? Role::quantize_k : Role::quantize_v)
                              : (side == 0 ? Role::dequantize_k : Role::dequantize_v);
  return role_of_codec(source_, any, args, product(1, args.sequences, args.tokens, args.heads));
}

Result<void> Program::codec(int side, bool is_writing, const kv::CodecArgs& args, const kv::PageTable& table,
                            const CheckBounds& check, Stream stream) const {
  const CacheCall at = cache_call(side, args, table, check);
  KV_CHECK(check_codec(side, args, at));
  const Role role = codec_role(side, is_writing, args);
  KV_TRY(loaded, kernel(role));
  const Source& source = source_.kernels.at(role);
  kv::CodecArgs given = args;
  KV_TRY(grid, grid_of_tiles(source, given, context_->backend()->facts().multiprocessors));
  KV_CHECK(look_up(at, args.sequences, args.tokens, check.record, stream));
  if (source_.page_tokens == 0) return launch(*context_, source_, role, *loaded, grid, given, check, stream);
  const kv::PagedCodecArgs paged{given, args.slots ? kv::PageTable{} : table};
  return launch(*context_, source_, role, *loaded, grid, paged, check, stream);
}

Result<void> Program::merge(const kv::MergePartsArgs& args, Stream stream) const {
  if (!source_.features.lse)
    return fail(Code::unsupported, fmt::format("program {} has no logarithms of sums to merge by", source_.id), {},
                {"attention.features = [\"lse\"]"});
  if (args.count < 1 || args.count > kv::kMostMergeParts)
    return refuse(fmt::format("{} parts; 1 to {} are possible (what is merged can be merged again)", args.count,
                              kv::kMostMergeParts));
  KV_CHECK(check_counts(args.sequences, args.queries, args.heads));
  if (args.queries != source_.query_length)
    return refuse(fmt::format("{} queries; the program has {}", args.queries, source_.query_length));
  const auto alignment = static_cast<unsigned>(wide_element_bytes(source_.out_type));
  for (int i = 0; i < args.count; ++i) {
    KV_CHECK(check_pointer(fmt::format("parts[{}].out", i).c_str(), args.parts[i].out.data, alignment));
    KV_CHECK(check_pointer(fmt::format("parts[{}].lse", i).c_str(), args.parts[i].lse, 4));
  }
  KV_CHECK(check_pointer("out", args.out.data, alignment));
  if (args.lse) KV_CHECK(check_pointer("lse", args.lse, 4));
  KV_TRY(loaded, kernel(Role::merge_contexts));
  const Source& source = source_.kernels.at(Role::merge_contexts);
  KV_TRY(grid, grid_of_rows(source, product(1, args.sequences, args.queries, args.heads)));
  return launch(*context_, source, *loaded, grid, args, stream);
}

Result<void> Program::launch_check(kv::CheckArgs args, const CheckBounds& check, Stream stream) const {
  KV_CHECK(check_pointer("the check record", check.record, alignof(kv::CheckRecord)));
  const bool has_pages = args.tables[0].table.pages || args.tables[1].table.pages;
  for (const kv::CheckedTable& table : args.tables)
    if (table.table.pages && table.pool_pages <= 0)
      return refuse(fmt::format("{} pages in the pool; a checked program needs their number", table.pool_pages));
  if (args.slots && args.slot_count <= 0)
    return refuse(fmt::format("{} slots; a checked program needs the number of those that there are", args.slot_count));
  args.record = check.record;
  args.page_tokens = has_pages ? source_.page_tokens : 1;
  KV_TRY(loaded, kernel(Role::check));
  return launch(*context_, source_.kernels.at(Role::check), *loaded, Grid{static_cast<unsigned>(args.sequences), 1, 1},
                args, stream);
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
