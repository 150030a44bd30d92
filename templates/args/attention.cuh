// What the host passes to each kernel: one struct by value. The runtime includes this very file, and each emitted
// kernel asserts the sizes, so host and device cannot disagree.
//
// Strides are 64-bit. Strides of queries and outputs count elements; strides of the cache count bytes.
// SPDX-License-Identifier: MIT
#pragma once
#include "args/types.cuh"

namespace kv {

// One side (K or V) of the cache. A row is what one (sequence, KV head, token) stores.
//   layout rows     codes points at whole blocks (codes and scales interleaved as the format says); scales is unused.
//                   Any strides; rows must be 2-byte aligned.
//   layout planar   two planes; a row of either is dense (the token stride IS the row), head and sequence strides are
//                   free; planes, head and sequence strides are multiples of 16 bytes.
struct CacheSide {
  u8* codes;
  u8* scales;
  i64 codes_sequence_stride, codes_head_stride, codes_token_stride;
  i64 scales_sequence_stride, scales_head_stride, scales_token_stride;
};

// A tensor of [sequences][queries][heads][dim] by strides; dim is dense: head_dim, or a side's inner dimension (what
// its stored values span: zero-padded heads are longer, the signs of a residual come on top).
struct Rows {
  void* data;
  i64 sequence_stride, query_stride, head_stride;
};

// How the tokens of a call are shared among blocks (kernels/decode/tile_scheduler.cuh).
struct WorkArgs {
  const int* lengths;  // tokens of each sequence (at most `tokens` count), or null: `tokens` for all
  int tokens, sequences;
  int kv_heads;  // of decode and merge: times the turns of their query rows (kernels/decode/query_chunks.cuh)
  int blocks;    // of decode: at most one a tile
  // Where lengths are null, so that the host knows: how much of the line a pair takes; and what each block gets, the
  // first `longer` one more.
  u32 room, share, longer;
  // Where they are not: blocks for each pair, 0 if there are fewer; pairs for each block, at most; and how many tiles'
  // time a seam costs, and a round of merging.
  u32 pieces, whole, seam, round;
};

constexpr int kMostBlockWarps = 16;  // of decode
constexpr int kPartsAtOnce = 16;     // of a pair, that a warp adds up: loads from far away, many under way

// decode and reference. grid: decode (blocks); reference (q_heads * query_length, 1, sequences).
struct AttentionArgs {
  // [sequences][query_length][q_heads]: f32 of K's inner dimension when rotate_q wrote it, else the plan's q type
  Rows q;
  CacheSide k, v;
  WorkArgs work;
  // decode, of parts of a (sequence, KV head) pair: [slot][rows][V's inner dimension], not normalised, in the order of
  // the accumulators; [slot][rows][2]: maximum (base 2), denominator. Slots: Work::slot.
  float* partial;
  float* partial_state;
  // decode, fused: parts of a pair that are done, by the pair's first block and the warp; zero before and after a call.
  // Null, where the plan allows that: parts are left for `merge`.
  u32* arrivals;
  Rows out;           // f32 of V's inner dimension when rotate_out follows, else the plan's out type
  float scale_log2;   // softmax scale times log2(e): scores are base-2 exponents; times K's tensor scale
  float value_scale;  // V's tensor scale
};

// merge, of what decode left. grid: (rows times the blocks of a row, kv_heads, sequences).
struct MergeArgs {
  const float* partial;
  const float* partial_state;
  WorkArgs work;
  Rows out;  // f32 when rotate_out reads it, else the plan's out type
};

// rotate_q (forward, reads the q type, writes f32) and rotate_out (inverse, reads f32, writes the out type).
// One warp a row; rows = sequences * queries * heads.
struct RotateArgs {
  Rows in, out;
  int sequences, queries, heads;
};

// Types of the rows that quantize reads and dequantize writes (the numbers of runtime/kvjit.h).
enum class RowType : int { f16 = 1, bf16 = 2, f32 = 3 };

// K or V of the newest tokens, as numbers: [sequences][query_length][kv_heads][head_dim]; query_stride is the token
// stride.
struct NewRows {
  Rows x;
  RowType type;
  float tensor_scale;
};
// decode of a plan that appends: it stores the newest tokens first.
struct AppendArgs : AttentionArgs {
  NewRows new_k, new_v;
};

// quantize: x -> cache; dequantize: cache -> x. One warp a (sequence, token, head).
struct CodecArgs {
  // query_stride is the token stride here; rows of head_dim values, or of all stored ones where keep_rotated is set
  Rows x;
  CacheSide side;
  // quantize: destination token of each input token, negative = skip; null: token t goes to first_token + t
  const i64* slots;
  i64 first_token;
  int sequences, tokens, heads;
  RowType x_type;
  int keep_rotated;    // dequantize: leave values in the rotated domain
  float tensor_scale;  // of formats that have one scale for the whole tensor
  // Kernels over tiles of 16 rows: how many there are, and how many a block takes. Tiles are 16 tokens of a head,
  // numbered with heads fastest, then the token_tiles of a sequence; token_tiles 0: rows are numbered through, tokens
  // fastest, and tiles are 16 of them.
  int tiles, block_tiles, token_tiles;
};

// probe. grid: any; 16 bytes a lane at a time.
struct ProbeArgs {
  const u8* from;  // aligned to 16
  i64 vectors;     // of 16 bytes
  i64 step;        // lanes of the whole grid
  u32* found;      // written by a lane whose words xor to `needle`
  u32 needle;
};

}  // namespace kv
