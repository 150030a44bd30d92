// The places of stored rows if a call names tokens by slots: forms of stored_row and stored_row_behind for formats with
// slots, instead of those of formats/stored_row.cuh. quantize and dequantize name token t of a sequence and get the row
// of that token's slot. A negative slot maps to a scratch row: reads give zeros, and nothing reads what is written
// there.
//
// A format F with slots of the generator has Rows (the format without slots), Slot (the integer type of slots), kSideAt
// (bytes from the start of a call's arguments to the side), and scratch_row() (the scratch row).
// SPDX-License-Identifier: MIT
#pragma once
#include "device/scratch.cuh"
#include "args/slots.cuh"
#include "formats/stored_row.cuh"

namespace kv {

template <class F>
concept Indexed = requires {
  F::kSideAt;
};

// The row of a token of the call. Formats with lengths have an overload (formats/stored_lengths.cuh).
template <class F>
KV_DEVICE StoredRow placed_row(const CacheSide& side, i64 sequence, i64 head, i64 token) {
  const auto& args = *reinterpret_cast<const IndexedCodecArgs*>(reinterpret_cast<const u8*>(&side) - F::kSideAt);
  const i64 slot = static_cast<const typename F::Slot*>(args.numbers)[sequence * args.tokens + token];
  if (slot < 0) return {F::scratch_row(), F::scratch_row()};
  return stored_row<typename F::Rows>(side, sequence, head, slot);
}

template <Indexed F>
KV_DEVICE StoredRow stored_row(const CacheSide& side, i64 sequence, i64 head, i64 token) {
  return placed_row<F>(side, sequence, head, token);
}
template <class F>
requires Indexed<F> && Paged<F> KV_DEVICE StoredRow stored_row(const CacheSide& side, i64 sequence, i64 head,
                                                               i64 token) {
  return placed_row<F>(side, sequence, head, token);
}
template <Indexed F>
KV_DEVICE StoredRow stored_row_behind(const StoredRow&, const CacheSide& side, i64 sequence, i64 head, i64 token,
                                      int by) {
  return placed_row<F>(side, sequence, head, token + by);
}
template <class F>
requires Indexed<F> && Paged<F> KV_DEVICE StoredRow stored_row_behind(const StoredRow&, const CacheSide& side,
                                                                      i64 sequence, i64 head, i64 token, int by) {
  return placed_row<F>(side, sequence, head, token + by);
}

}  // namespace kv
