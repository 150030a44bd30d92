// Rows of an operation on a cache: the (sequence, token, head) that a row's number stands for, and the slot of the
// cache that holds the row.
// SPDX-License-Identifier: MIT
#pragma once
#include "args/operations.cuh"
#include "device/simt.cuh"

namespace kv {

// The place of a row in a call. Rows are numbered with heads fastest, then tokens, then sequences.
struct OperationRow {
  u32 sequence, token, head,
      index;  // the token's number among those of all sequences: its place in slots and positions
};
template <class Args>
KV_DEVICE u32 operation_rows(const Args& args) {  // fits 31 bits, as the host checks
  return u32(args.sequences) * args.tokens * args.heads;
}
template <class Args>
KV_DEVICE OperationRow operation_row(const Args& args, u32 row) {
  const u32 heads = args.heads, tokens = args.tokens, index = row / heads, sequence = index / tokens;
  return {sequence, index - sequence * tokens, row - index * heads, index};
}

// The slot of a row's token in a cache. A negative slot means no token; callers leave the row out.
KV_DEVICE i64 slot_of(const void* slots, SlotType type, i64 first_token, const OperationRow& row) {
  if (!slots) return first_token + row.token;
  return type == SlotType::i32 ? i64(static_cast<const int*>(slots)[row.index])
                               : static_cast<const i64*>(slots)[row.index];
}
KV_DEVICE i64 slot_of(const CacheTokens& tokens, const OperationRow& row) {
  return slot_of(tokens.slots, tokens.slot_type, tokens.first_token, row);
}
KV_DEVICE i64 slot_of(const RopedCodecArgs& args, const OperationRow& row) {
  return slot_of(args.numbers, args.slot_type, args.first_token, row);
}

}  // namespace kv
