// Arguments of attention, of the codec and of the auxiliary kernels. The host passes one struct by value to each
// kernel.
//
// Host and device share this file: the runtime includes it as it is, and each emitted kernel asserts the size of its
// struct, so the two sides cannot disagree.
//
// Strides are 64-bit. Strides of queries, outputs and other numbers count elements. Strides of a cache count bytes.
// SPDX-License-Identifier: MIT
#pragma once
#include "args/types.cuh"

namespace kv {

// One side of a cache: K or V. A row is the stored bytes of one (sequence, KV head, token).
//   layout rows     A row is whole blocks, in which codes and scales are interleaved as the format says. `codes` points
//                   at them; `scales` is unused. Addresses and strides are free but even.
//   layout planar   `codes` and `scales` point at two planes. Rows of a plane are dense: the token stride is the size
//                   of a row. The planes, and their head and sequence strides, are multiples of 16 bytes.
// Paged caches give these members another meaning (args/page_table.cuh). Token-major heads that a block takes together
// (cache.token_heads, layout rows) need dense heads and dense tokens, and multiples of 16 bytes for `codes` and the
// sequence stride.
struct CacheSide {
  u8* codes;                  // the row of sequence 0, head 0, token 0
  u8* scales;                 // the scales of that row, in layout planar
  i64 codes_sequence_stride,  // bytes from one sequence to the next; of paged caches: from one page to the next
      codes_head_stride,      // bytes from one KV head to the next
      codes_token_stride;     // bytes from one token to the next
  i64 scales_sequence_stride, scales_head_stride, scales_token_stride;  // the same strides of the plane of scales
};

// A tensor [sequences][queries][heads][dim] with strides in elements. `dim` is dense. It is head_dim, or the inner
// dimension of a side of the cache: all values of a stored row, the zeros behind a padded head included, and as many
// again for the signs of a residual.
struct Rows {
  void* data;           // the element at [0][0][0][0]
  i64 sequence_stride,  // elements from one sequence to the next
      query_stride,     // elements from one query, or token, to the next
      head_stride;      // elements from one head to the next
};

// Arguments of the tile scheduler, which deals the tiles of a call out to blocks (kernels/decode/tile_scheduler.cuh).
// The tiles of all batch-heads are numbered through, and each block takes a range of the numbers. The rule is
// choose_schedule() of args/schedule.cuh. The host applies it if it knows the tiles of every batch-head. Otherwise each
// block applies it: if lengths are in device memory, or if the plan has a window or an offset of positions by which
// whole tiles are unseen (features/token_range.cuh).
struct SchedulerArgs {
  const int* lengths;  // tokens of each sequence, in device memory; null: `tokens` for every sequence
  int tokens,          // tokens of the longest sequence; lengths are clamped to 0 .. tokens
      sequences;       // sequences of the call
  // Heads that the scheduler sees. decode and merge: KV heads, divided by the token-major heads that a block takes
  // together, times the query chunks of each (kernels/decode/query_chunks.cuh). reference: KV heads.
  int kv_heads;
  int blocks;  // blocks of decode; at most one a tile
  // The schedule that the host made. Kernels that make it themselves ignore these numbers.
  u32 tiles_per_head,        // tiles of a batch-head, padding included
      tiles_per_block,       // tiles of a block
      blocks_with_one_more;  // how many blocks, from block 0 on, take one tile more
  // The numbers that the rule takes.
  u32 splits_per_head,       // blocks for one batch-head; 0 if there are fewer blocks than batch-heads
      heads_per_block,       // whole batch-heads for one block, at most
      split_boundary_tiles,  // cost of a split boundary inside a block, in tiles
      merge_round_tiles;     // cost of one more round of merging, in tiles
};

constexpr int kMostBlockWarps = 16;  // warps of a decode block at most; each has its own split counter
// KV splits of a batch-head that a warp merges at once. Their loads come from far away, so many are under way together.
constexpr int kSplitsAtOnce = 16;

// Arguments of decode and reference. Grids: decode (scheduler.blocks), reference (q_heads * query_length, 1,
// sequences).
struct AttentionArgs {
  // Queries, [sequences][query_length][q_heads]. Rows that rotate_q wrote are f32 of K's inner dimension; otherwise
  // they have head_dim values of the plan's q type.
  Rows q;
  CacheSide k, v;
  SchedulerArgs scheduler;
  // Partial results of decode, one a KV split. The tile scheduler numbers them by TileScheduler::partial_index.
  float* partial;        // [slot][query row][V's inner dimension]: sums, not normalized, in accumulator order
  float* partial_state;  // [slot][query row][2]: reference maximum (base 2) and denominator
  // Split counters of the merge inside decode, [block][warp] with kMostBlockWarps a block: how many KV splits of a
  // batch-head are done. A batch-head uses counters of its own blocks, from the block of its first split on. They are
  // zero before and after a call. Null: decode leaves the splits to `merge`, which the plan must allow.
  u32* split_counters;
  Rows out;           // f32 of V's inner dimension if rotate_out follows, else the plan's out type
  float scale_log2;   // softmax scale x log2(e) x K's tensor scale; scores are base-2 exponents
  float value_scale;  // V's tensor scale
};

// Arguments of merge, which sums up the KV splits that decode left. Grid: (query rows x the blocks of a row, heads that
// the scheduler sees, sequences).
struct MergeArgs {
  const float* partial;        // as in AttentionArgs
  const float* partial_state;  // as in AttentionArgs
  SchedulerArgs scheduler;     // the same as decode had
  Rows out;                    // f32 if rotate_out reads it, else the plan's out type
};

// Arguments of rotate_q (forward: reads the q type, writes f32) and of rotate_out (inverse: reads f32, writes the out
// type). One warp takes one of sequences * queries * heads rows.
struct RotateArgs {
  Rows in, out;
  int sequences, queries, heads;
};

// Element types of the rows that quantize reads and dequantize writes, with the numbers of runtime/kvjit.h.
enum class RowType : int { f16 = 1, bf16 = 2, f32 = 3 };

// K or V of the new tokens of a call, which are not stored yet.
struct NewRows {
  Rows x;              // [sequences][query_length][kv_heads][head_dim]; query_stride is the token stride
  RowType type;        // the element type of x
  float tensor_scale;  // the scale of formats that have one for the whole tensor
};
// Arguments of decode whose plan appends: it stores the new tokens before it attends to them.
struct AppendArgs : AttentionArgs {
  NewRows new_k, new_v;
};

// Arguments of quantize (x -> cache) and dequantize (cache -> x). quantize.cuh and dequantize.cuh of kernels/codec give
// one warp to each (sequence, token, head). Bulk kernels give several rows to a warp.
struct CodecArgs {
  // Numbers, [sequences][tokens][heads]; query_stride is the token stride. Rows have head_dim values, or all stored
  // ones if keep_rotated is set.
  Rows x;
  CacheSide side;
  // quantize: where each token goes, [sequence][token], as a token of the cache; a negative slot skips the token. Null:
  // token t goes to first_token + t.
  const i64* slots;
  i64 first_token;  // the cache's token of token 0; dequantize reads from there
  int sequences, tokens, heads;
  RowType x_type;      // the element type of x
  int keep_rotated;    // dequantize: leave values in the rotated domain
  float tensor_scale;  // the scale of formats that have one for the whole tensor
  // Kernels over tiles of 16 rows. A tile is 16 tokens of one head, tiles are numbered with heads fastest and then the
  // tiles of a sequence, and the last tile of a head may be short. If token_tiles is 0, rows are numbered with tokens
  // fastest, then heads, and each 16 of them are a tile.
  int tiles,        // tiles of the call
      block_tiles,  // tiles of one block
      token_tiles;  // tiles of one head of a sequence, or 0
};

// Arguments of probe. Any grid serves; a lane reads 16 bytes at a time.
struct ProbeArgs {
  const u8* from;  // aligned to 16 bytes
  i64 vectors;     // vectors of 16 bytes to read
  i64 step;        // lanes of the whole grid
  u32* found;      // a lane whose words xor to `needle` writes here, so that no load can be dropped
  u32 needle;
};

}  // namespace kv
