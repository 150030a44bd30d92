// Arguments of operations on caches beside attention and the codec: copies from one cache to another, and rotary
// positions for stored rows and for rows on their way into a cache.
// SPDX-License-Identifier: MIT
#pragma once
#include "args/slots.cuh"

namespace kv {

// The tokens of a cache that an operation reads or writes. Token t of a sequence is the cache's token
// slots[sequence][t], or first_token + t if there are no slots.
struct CacheTokens {
  CacheSide side;
  PageTable table;     // for layout paged. Null with slots, which then are page * kPageTokens + place in the page
  const void* slots;   // [sequence][token] of slot_type; a negative slot is no token. Null: there are no slots
  i64 first_token;     // the cache's token of token 0
  float tensor_scale;  // the scale of formats that have one for the whole tensor
  SlotType slot_type;
};

// Arguments of copy and requantize: tokens of one cache go to another, which shares no bytes with it. A token whose
// slot is negative at either end is left out.
struct CopyArgs {
  CacheTokens from, to;
  int sequences, tokens, heads;
};

// The pairs of values that RoPE rotates: neighbours (2 i, 2 i + 1), or halves (i, i + dims / 2).
enum class RopePairs : int { neighbours = 0, halves = 1 };
constexpr int kMostRopePairs = 256;  // pairs of values in a row, so that dims is at most 512

// Rotary positions of a row. Pair i of the values first .. first + dims - 1 is rotated by position * frequencies[i] /
// factors[i] full rotations (of 2 pi).
struct RopeArgs {
  const int* positions;  // [sequence][token]; null: `position` for every token
  const float* factors;  // one a pair; null: 1
  int position, first, dims;
  RopePairs pairs;
  float magnitude;                     // the rotated values are multiplied by this
  double frequencies[kMostRopePairs];  // full rotations a position, one for each pair
};

// Arguments of shift, which moves stored keys in place by rope.positions further positions. Rows whose shift is 0, and
// rows of negative slots, keep their bytes.
struct ShiftArgs {
  CacheTokens at;
  int sequences, tokens, heads, blocks;  // blocks: those of the grid; a warp goes on to further rows
  RopeArgs rope;
};
// Arguments of the bulk kernels of copy and shift. Tiles are those of CodecArgs.
struct BulkCopyArgs : CopyArgs {
  int tiles, block_tiles, token_tiles;
};
struct BulkShiftArgs : ShiftArgs {
  int tiles, block_tiles, token_tiles;
};
// Arguments of quantize_rope, which applies RoPE to rows on their way into the cache. `numbers` are the slots of the
// tokens; null: token t goes to first_token + t.
struct RopedCodecArgs : IndexedCodecArgs {
  SlotType slot_type;  // the type of `numbers`
  int blocks;          // blocks of the grid; a warp goes on to further rows
  RopeArgs rope;
};
}  // namespace kv
