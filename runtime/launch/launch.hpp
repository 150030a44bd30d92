// Helpers of all launches: grids from counts of rows, and the check that kernel and runtime agree on the size of the
// arguments. Internal to runtime/.
// SPDX-License-Identifier: MIT
#pragma once
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "runtime/base/sizes.hpp"
#include "runtime/launch/kv_checks.hpp"
#include "runtime/launch/program.hpp"

namespace kvjit {

// A grid of kernels that take row_threads threads for a row.
inline Result<Grid> grid_of_rows(const Source& source, std::size_t rows) {
  const auto threads = static_cast<std::size_t>(std::max(source.threads, 32));
  if (rows > std::size_t{std::numeric_limits<int>::max()})
    return refuse(fmt::format("{} rows in one call of {}; at most {} are possible", rows, source.name,
                              std::numeric_limits<int>::max()));
  const std::size_t all = rows * static_cast<std::size_t>(source.row_threads);
  return Grid{static_cast<unsigned>((all + threads - 1) / threads), 1, 1};
}

template <class Args>
Result<void> launch(Context& context, const Source& source, const KernelRecord& record, Grid grid, const Args& args,
                    Stream stream) {
  if (source.args_bytes != static_cast<int>(sizeof(Args)))
    return fail(Code::internal, fmt::format("{} takes {} bytes of arguments, the runtime has {}", source.name,
                                            source.args_bytes, sizeof(Args)));
  return context.backend()->launch(*record.kernel, grid, &args, stream);
}
// Launches a kernel of a program. Checked programs pass the record behind the arguments.
template <class Args>
Result<void> launch(Context& context, const ProgramSource& program, Role role, const KernelRecord& record, Grid grid,
                    const Args& args, const CheckBounds& check, Stream stream) {
  const Source& source = program.kernels.at(role);
  return program.checks ? launch(context, source, record, grid, kv::Checked<Args>{args, check.record}, stream)
                        : launch(context, source, record, grid, args, stream);
}

// A grid of kernels over (sequence, token, head) rows. For bulk kernels, which take tiles of 16 rows, it also sets the
// counts of tiles in args.
template <class Args>
Result<Grid> grid_of_tiles(const Source& source, Args& args, int multiprocessors) {
  const std::size_t rows = product(1, args.sequences, args.tokens, args.heads);
  KV_TRY(grid, grid_of_rows(source, rows));
  if (source.tiles == 0) return grid;
  // At most one block for each multiprocessor. `tiles_per_block` is the tiles per block, a multiple of the tiles that a
  // block takes at once (source.tiles).
  const auto tiles_at_once = static_cast<std::size_t>(source.tiles);
  const auto blocks = static_cast<std::size_t>(std::max(multiprocessors, 1));
  constexpr std::size_t kTile = 16,
                        kManyTokens = 128;  // with fewer tokens more than an eighth of a tile could be empty
  const bool is_by_head = std::size_t(args.tokens) >= kManyTokens;
  const std::size_t token_tiles = is_by_head ? (std::size_t(args.tokens) + kTile - 1) / kTile : 0;
  const std::size_t tiles = is_by_head ? product(token_tiles, args.sequences, args.heads) : (rows + kTile - 1) / kTile;
  const std::size_t tiles_per_block = (tiles + blocks * tiles_at_once - 1) / (blocks * tiles_at_once) * tiles_at_once;
  args.tiles = static_cast<int>(tiles);
  args.token_tiles = static_cast<int>(token_tiles);
  args.block_tiles = static_cast<int>(tiles_per_block);
  grid.x = static_cast<unsigned>((tiles + tiles_per_block - 1) / tiles_per_block);
  return grid;
}

// Whether each row of x begins at a multiple of 16 bytes, which bulk kernels need.
inline bool has_aligned_rows(const kv::CodecArgs& args) {
  const long long vector = args.x_type == kv::RowType::f32 ? 4 : 8;  // elements in 16 bytes
  return reinterpret_cast<std::uintptr_t>(args.x.data) % 16 == 0 && args.x.sequence_stride % vector == 0 &&
         args.x.query_stride % vector == 0 && args.x.head_stride % vector == 0;
}

// The cache tokens of a call of quantize or dequantize.
inline CacheCall cache_call(int side, const kv::CodecArgs& args, const kv::PageTable& table, const CheckBounds& check,
                            const SlotNumbers& slots = {}) {
  return {side,
          {args.side, table, slots.slots ? slots.slots : args.slots, args.first_token, args.tensor_scale, slots.type},
          side == 0 ? check.k_pages : check.v_pages,
          check.slot_count};
}

}  // namespace kvjit
