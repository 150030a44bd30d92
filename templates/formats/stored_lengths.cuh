// The places of stored rows if sequences have lengths in device memory. dequantize reads no token behind the end of its
// sequence, and quantize stores new tokens, the last ones of each sequence. A token without a place maps to a scratch
// row: reads give zeros, and nothing reads what is written there. The forms of stored_row and stored_row_behind are
// those of formats with slots (formats/stored_slots.cuh).
//
// A format F with lengths of the generator has Rows (the format without lengths), kSideAt (bytes from the start of a
// call's arguments to the side), scratch_row() (the scratch row), and kEndsAtLengths (dequantize) or kAppends
// (quantize). With kReadsSeen, dequantize also leaves out tokens that no query of the call sees: their memory may be
// freed.
// SPDX-License-Identifier: MIT
#pragma once
#include "args/context_chunks.cuh"
#include "formats/stored_slots.cuh"

namespace kv {

template <class F>
concept Bounded = requires {
  F::kEndsAtLengths;
};
template <class F>
concept Appended = requires {
  F::kAppends;
};
template <class F>
KV_DEVICE const BoundedCodecArgs& args_with_lengths(const CacheSide& side) {
  return *reinterpret_cast<const BoundedCodecArgs*>(reinterpret_cast<const u8*>(&side) - F::kSideAt);
}

template <Bounded F>
KV_DEVICE StoredRow placed_row(const CacheSide& side, i64 sequence, i64 head, i64 token) {
  const BoundedCodecArgs& args = args_with_lengths<F>(side);
  if (args.lengths && token >= args.lengths[sequence]) return {F::scratch_row(), F::scratch_row()};
  return stored_row<typename F::Rows>(side, sequence, head, token);
}
template <Bounded F>
requires(F::kReadsSeen) KV_DEVICE StoredRow placed_row(const CacheSide& side, i64 sequence, i64 head, i64 token) {
  const BoundedCodecArgs& args = args_with_lengths<F>(side);
  const int length = args.lengths ? clamped_token(args.lengths[sequence], args.most) : args.most;
  const TokenRange seen = seen_tokens(args.seen, sequence, length, args.seen.queries);
  if (token < seen.first || token >= seen.end) return {F::scratch_row(), F::scratch_row()};
  return stored_row<typename F::Rows>(side, sequence, head, token);
}

// token: of the new tokens, if there are lengths; else of the cache. Either may begin before token 0 of the cache.
template <Appended F>
KV_DEVICE StoredRow placed_row(const CacheSide& side, i64 sequence, i64 head, i64 token) {
  const BoundedCodecArgs& args = args_with_lengths<F>(side);
  int first = 0;
  if (args.lengths) first = (args.lengths[sequence] < args.most ? args.lengths[sequence] : args.most) - args.tokens;
  const i64 at = first + token;
  if (at < 0) return {F::scratch_row(), F::scratch_row()};
  return stored_row<typename F::Rows>(side, sequence, head, at);
}

}  // namespace kv
