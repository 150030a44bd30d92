// Prefill in two passes: a chunk of the context is dequantized to halves in the workspace, then prefill attends to it.
// Chunks have a constant size, so the workspace does not grow with the context:
//
//   for each group of sequences
//     for each chunk of their contexts
//       dequantize_chunk_k, dequantize_chunk_v     the chunk in layout planar, f16
//       prefill of the second pass                 adds the sums over the chunks before; stores its own, or the output.
//                                                  Two kernels, if rows may have powers of two; one of them returns
//
// The result of a sequence does not depend on the batch: its chunks begin at the same tokens in every batch.
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <atomic>
#include <utility>

#include "runtime/base/sizes.hpp"
#include "runtime/launch/launch.hpp"
#include "runtime/launch/prefill.hpp"
#include "runtime/launch/tile_schedule.hpp"
#include "runtime/launch/workspace.hpp"

namespace kvjit {
namespace {

// Halves of K and V of a chunk, bytes. On the CPU back-end: few, so that short contexts of tests have several chunks.
constexpr std::size_t kContextChunkBytes = std::size_t{128} << 20, kCpuContextChunkBytes = std::size_t{256} << 10;
constexpr int kTile = 128;        // tokens of a tile of prefill
constexpr std::size_t kHalf = 2;  // bytes

// Bytes of the halves of a token in all heads.
std::size_t token_bytes(const ProgramSource& source, const AttentionCall& call, int side) {
  return product(kHalf, call.kv_heads, source.second_pass.front().dim(side));
}

// A kernel that is launched for each chunk is named once.
void add_once(std::vector<std::string>& names, const std::string& name) {
  if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
}

// A pointer of the call that many bytes on; null stays null.
template <class T>
T* moved(T* pointer, long long bytes) {
  if (!pointer) return nullptr;
  return reinterpret_cast<T*>(reinterpret_cast<std::uintptr_t>(pointer) + static_cast<std::uintptr_t>(bytes));
}

// A number that no chunk before had. A word that holds it by chance costs time alone: no row has an exponent then.
kv::u32 next_chunk() {
  static std::atomic<kv::u32> chunks{0};
  return ++chunks;
}

// The call of the second pass for `count` sequences from `first` on. Its inputs are those sequences'.
AttentionCall of_group(const ProgramSource& source, const AttentionCall& call, long long first, int count) {
  const ProgramSource& second = source.second_pass.front();
  AttentionCall own = call;
  own.sequences = count;
  own.q.data = moved(call.q.data, first * call.q.sequence_stride * int(wide_element_bytes(second.q_type)));
  own.out.data = moved(call.out.data, first * call.out.sequence_stride * int(wide_element_bytes(second.out_type)));
  own.lengths = moved(call.lengths, first * int(sizeof(int)));
  kv::FeatureArgs& features = own.features;
  features.mask = moved(features.mask, first * features.mask_sequence_stride * int(sizeof(*features.mask)));
  features.packed_mask =
      moved(features.packed_mask, first * features.packed_sequence_stride * int(sizeof(*features.packed_mask)));
  features.position_offsets = moved(features.position_offsets, first * int(sizeof(int)));
  features.token_ranges = moved(features.token_ranges, first * 2 * int(sizeof(int)));
  features.lse = moved(features.lse, first * queries_of(source, call) * q_heads(source, call) * int(sizeof(float)));
  for (auto* side : {&own.k, &own.v}) {
    if (source.page_tokens > 0) break;  // sequences have tables, and one pool
    side->codes = moved(side->codes, first * side->codes_sequence_stride);
    side->scales = moved(side->scales, first * side->scales_sequence_stride);
  }
  for (auto* table : {&own.k_table, &own.v_table})
    table->pages = moved(table->pages, first * table->row_stride * int(sizeof(int)));
  return own;
}

}  // namespace

ContextChunks lay_out_context_chunks(const ProgramSource& source, const DeviceInfo& device, const AttentionCall& call) {
  const ProgramSource& second = source.second_pass.front();
  const std::size_t k_bytes = token_bytes(source, call, 0), v_bytes = token_bytes(source, call, 1);
  const auto tiles = [](std::size_t tokens) { return std::max<std::size_t>(tokens / kTile, 1); };
  const std::size_t context_chunk_bytes = call.context_chunk_bytes > 0 ? call.context_chunk_bytes
                                          : device.is_gpu              ? kContextChunkBytes
                                                                       : kCpuContextChunkBytes;
  const std::size_t most = tiles(context_chunk_bytes / std::max<std::size_t>(plus(k_bytes, v_bytes), 1)),
                    all = tiles(static_cast<std::size_t>(std::max(call.tokens, 1)) + kTile - 1);
  ContextChunks chunks;
  const std::size_t chunk_tiles = std::min(most, all);
  chunks.tokens = static_cast<int>(chunk_tiles * kTile);
  // Groups of equal size.
  const auto sequences = static_cast<std::size_t>(std::max(call.sequences, 1));
  const std::size_t fitting = std::min(most / chunk_tiles, sequences), groups = (sequences + fitting - 1) / fitting;
  chunks.group = static_cast<int>((sequences + groups - 1) / groups);
  AttentionCall group = call;
  group.sequences = chunks.group, group.many_rows = ManyRows::prefill;
  std::size_t end = rounded(lay_out(second, device, group).bytes);
  const auto place = [&end](std::size_t bytes) { return std::exchange(end, rounded(plus(end, bytes))); };
  const std::size_t tokens = product(1, chunks.group, chunks.tokens), heads = product(1, call.kv_heads);
  chunks.k = place(times(tokens, k_bytes));
  chunks.v = place(times(tokens, v_bytes));
  const auto exponents = [&](const SideInfo& side) { return side.fits_rows ? times(tokens, heads) : 0; };
  chunks.k_exponents = place(exponents(source.k));
  chunks.v_exponents = place(exponents(source.v));
  chunks.powers_used = place(source.k.fits_rows || source.v.fits_rows ? sizeof(kv::u32) : 0);
  // Sums as a slot of splits has them (templates/kernels/prefill/splits.cuh), unless there is one chunk.
  const std::size_t slots = all > chunk_tiles ? product(sizeof(float), work_tile_count(second, group), 1) : 0;
  chunks.sums = place(times(slots, second.prefill_splits.slot_sums));
  chunks.state = place(times(slots, second.prefill_splits.slot_states));
  const auto dense = [&](const SideInfo& side, int dim) {
    return side.stays_rotated ? product(sizeof(float), query_rows(source, call), q_heads(source, call), dim) : 0;
  };
  chunks.rotated_q = place(dense(source.k, second.head_dim));
  chunks.unrotated_out = place(dense(source.v, second.v_dim()));
  chunks.bytes = end;
  return chunks;
}

Result<void> Program::dequantize_chunk(int side, const kv::BoundedCodecArgs& args, kv::CheckRecord* record,
                                       Stream stream, LaunchReport& report) const {
  KV_TRY(name, bounded_codec(side == 0 ? Role::dequantize_chunk_k : Role::dequantize_chunk_v, args, record, stream));
  add_once(report.kernels, name);
  report.converted_bytes += static_cast<long long>(product(kHalf, args.sequences, args.tokens, args.heads)) *
                            source_.second_pass.front().dim(side);
  return {};
}

Result<void> Program::run_two_passes(const AttentionCall& call, const ContextChunks& chunks, DevicePointer workspace,
                                     Stream stream, const QueryLengths& lengths, LaunchReport& report) const {
  for (int first = 0; first < call.sequences; first += chunks.group) {
    AttentionCall group = of_group(source_, call, first, std::min(chunks.group, call.sequences - first));
    group.many_rows = ManyRows::prefill;
    const kv::CacheSide stored[] = {group.k, group.v};
    const kv::PageTable tables[] = {group.k_table, group.v_table};
    kv::CacheSide* const halves[] = {&group.k, &group.v};
    for (int begin = 0; begin < std::max(call.tokens, 1); begin += chunks.tokens) {
      const int tokens = std::min(chunks.tokens, call.tokens - begin);
      const kv::RowPowers powers{reinterpret_cast<kv::u32*>(workspace + chunks.powers_used), next_chunk()};
      for (int side = 0; side < 2; ++side) {
        const long long dim = source_.second_pass.front().dim(side), head = dim * chunks.tokens,
                        sequence = head * call.kv_heads;
        void* const data = reinterpret_cast<void*>(workspace + (side == 0 ? chunks.k : chunks.v));
        kv::BoundedCodecArgs args{};
        args.x = {data, sequence, dim, head};
        args.side = stored[side];
        args.table = tables[side];
        args.lengths = group.lengths, args.most = call.tokens, args.waits_at_end = side;
        args.first_token = begin, args.sequences = group.sequences, args.tokens = tokens, args.heads = call.kv_heads;
        args.x_type = kv::RowType::f16;
        args.tensor_scale = 1;  // the second pass has it
        args.seen = seen_args(source_, group);
        const SideInfo& info = side == 0 ? source_.k : source_.v;
        args.keep_rotated = info.stays_rotated ? 1 : 0;
        auto* const exponents =
            reinterpret_cast<kv::u8*>(workspace + (side == 0 ? chunks.k_exponents : chunks.v_exponents));
        if (info.fits_rows) args.exponents = exponents, args.powers = powers;
        if (tokens > 0) KV_CHECK(dequantize_chunk(side, args, call.check.record, stream, report));
        *halves[side] = {static_cast<kv::u8*>(data), nullptr, 2 * sequence, 2 * head, 2 * dim, 0, 0, 0};
        if (info.fits_rows)
          halves[side]->scales = exponents, halves[side]->scales_sequence_stride = sequence / dim,
          halves[side]->scales_head_stride = head / dim, halves[side]->scales_token_stride = 1;
      }
      const kv::ContextChunkArgs chunk{begin,
                                       begin + chunks.tokens,
                                       begin + chunks.tokens >= call.tokens ? 1 : 0,
                                       reinterpret_cast<float*>(workspace + chunks.sums),
                                       reinterpret_cast<float*>(workspace + chunks.state),
                                       powers};
      for (const auto& pass : second_passes_) {
        KV_TRY(ran, pass->run(false, group, workspace, stream, lengths, &chunk));
        for (const std::string& kernel : ran.kernels) add_once(report.kernels, kernel);
        report.blocks = ran.blocks;
      }
    }
  }
  return {};
}

}  // namespace kvjit
