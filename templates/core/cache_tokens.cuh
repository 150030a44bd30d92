// Rows of an operation on a cache: which one a number stands for, and where it is.
// SPDX-License-Identifier: MIT
#pragma once
#include "core/operations.cuh"
#include "core/simt.cuh"

namespace kv {

// Heads are numbered fastest. index: of the token among all of the call.
struct OperationRow {
  u32 sequence, token, head, index;
};
template <class Args>
KV_DEVICE u32 operation_rows(const Args& args) {  // fits 31 bits: the host checks
  return u32(args.sequences) * args.tokens * args.heads;
}
template <class Args>
KV_DEVICE OperationRow operation_row(const Args& args, u32 row) {
  const u32 heads = args.heads, tokens = args.tokens, index = row / heads, sequence = index / tokens;
  return {sequence, index - sequence * tokens, row - index * heads, index};
}

// Negative: none.
KV_DEVICE i64 slot_of(const CacheTokens& tokens, const OperationRow& row) {
  if (!tokens.slots) return tokens.first_token + row.token;
  return tokens.slot_type == SlotType::i32 ? i64(static_cast<const int*>(tokens.slots)[row.index])
                                           : static_cast<const i64*>(tokens.slots)[row.index];
}

}  // namespace kv
