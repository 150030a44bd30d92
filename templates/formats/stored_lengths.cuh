// The places of stored rows if sequences have lengths in device memory: forms of stored_row and stored_row_behind for
// formats with lengths, instead of those of formats/stored_row.cuh. A token behind the end of its sequence maps to a
// scratch row, whose bytes are zeros, so nothing is read outside the cache.
//
// A format F with lengths of the generator has Rows (the format without lengths), kLengthsFrom (bytes from the start of
// a call's arguments to the side), and scratch_row() (the scratch row).
// SPDX-License-Identifier: MIT
#pragma once
#include "device/scratch.cuh"
#include "args/context_chunks.cuh"
#include "formats/stored_row.cuh"

namespace kv {

template <class F>
concept Bounded = requires {
  F::kLengthsFrom;
};

template <class F>
KV_DEVICE StoredRow row_of_length(const CacheSide& side, i64 sequence, i64 head, i64 token) {
  const auto& args = *reinterpret_cast<const BoundedCodecArgs*>(reinterpret_cast<const u8*>(&side) - F::kLengthsFrom);
  if (args.lengths && token >= args.lengths[sequence]) return {F::scratch_row(), F::scratch_row()};
  return stored_row<typename F::Rows>(side, sequence, head, token);
}

template <Bounded F>
KV_DEVICE StoredRow stored_row(const CacheSide& side, i64 sequence, i64 head, i64 token) {
  return row_of_length<F>(side, sequence, head, token);
}
template <class F>
requires Bounded<F> && Paged<F> KV_DEVICE StoredRow stored_row(const CacheSide& side, i64 sequence, i64 head,
                                                               i64 token) {
  return row_of_length<F>(side, sequence, head, token);
}
template <Bounded F>
KV_DEVICE StoredRow stored_row_behind(const StoredRow&, const CacheSide& side, i64 sequence, i64 head, i64 token,
                                      int by) {
  return row_of_length<F>(side, sequence, head, token + by);
}
template <class F>
requires Bounded<F> && Paged<F> KV_DEVICE StoredRow stored_row_behind(const StoredRow&, const CacheSide& side,
                                                                      i64 sequence, i64 head, i64 token, int by) {
  return row_of_length<F>(side, sequence, head, token + by);
}

}  // namespace kv
