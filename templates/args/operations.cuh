// What operations on caches beside attention and the write path are told: copies from one cache to another, and rotary
// positions.
// SPDX-License-Identifier: MIT
#pragma once
#include "args/slots.cuh"

namespace kv {

// The tokens of a cache that an operation reads or writes; token t of a sequence is slots[sequence][t], or first_token
// + t.
struct CacheTokens {
  CacheSide side;
  PageTable table;  // of layout paged; null with slots, which are page * kPageTokens + place in the page then
  const void* slots;
  i64 first_token;
  float tensor_scale;
  SlotType slot_type;
};

// copy and requantize: tokens of one cache to another that shares no bytes with it. A token that is negative at either
// end is left out.
struct CopyArgs {
  CacheTokens from, to;
  int sequences, tokens, heads;
};

// Which values turn together: neighbours (2 i, 2 i + 1), or halves (i, i + dims / 2).
enum class RopePairs : int { neighbours = 0, halves = 1 };
constexpr int kMostRopePairs = 256;

// Pair i of a row's values first .. first + dims - 1 turns by position * turns[i] / factors[i] whole turns.
struct RopeArgs {
  const int* positions;  // [sequence][token], or null: `position` for all
  const float* factors;  // null: 1
  int position, first, dims;
  RopePairs pairs;
  float magnitude;  // times this
  double turns[kMostRopePairs];
};

// shift, in place: rows turn by `positions` more. Rows with 0, and those of negative slots, are left as they are.
struct ShiftArgs {
  CacheTokens at;
  int sequences, tokens, heads, blocks;
  RopeArgs rope;
};
// The same many rows at once: tiles of 16, as in CodecArgs.
struct TiledCopyArgs : CopyArgs {
  int tiles, block_tiles, token_tiles;
};
struct TiledShiftArgs : ShiftArgs {
  int tiles, block_tiles, token_tiles;
};
// quantize_rope: rows turn to their positions on their way into the cache.
struct RopedCodecArgs : IndexedCodecArgs {
  SlotType slot_type;
  int blocks;
  RopeArgs rope;
};

}  // namespace kv
