// The places of stored rows if sequences have lengths in device memory: a token behind the end of its sequence maps to
// a scratch row, whose bytes are zeros, so nothing is read outside the cache. The forms of stored_row and
// stored_row_behind are those of formats with slots (formats/stored_slots.cuh).
//
// A format F with lengths of the generator has Rows (the format without lengths), kSideAt (bytes from the start of a
// call's arguments to the side), scratch_row() (the scratch row) and kHasLengths.
// SPDX-License-Identifier: MIT
#pragma once
#include "args/context_chunks.cuh"
#include "formats/stored_slots.cuh"

namespace kv {

template <class F>
concept Bounded = requires {
  F::kHasLengths;
};

template <Bounded F>
KV_DEVICE StoredRow placed_row(const CacheSide& side, i64 sequence, i64 head, i64 token) {
  const auto& args = *reinterpret_cast<const BoundedCodecArgs*>(reinterpret_cast<const u8*>(&side) - F::kSideAt);
  if (args.lengths && token >= args.lengths[sequence]) return {F::scratch_row(), F::scratch_row()};
  return stored_row<typename F::Rows>(side, sequence, head, token);
}

}  // namespace kv
