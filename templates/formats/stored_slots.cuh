// Stored rows by slots: where they are, instead of formats/stored_row.cuh's answer. quantize and dequantize ask for
// token t of a sequence and get that of slot t; a token that is none has a row of nobody's, which reads as zeros and
// whose bytes nobody reads. F: Rows, the format without slots; Slot, the type of numbers; kSideAt, of the side in a
// call's arguments; nobody().
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

template <class F>
KV_DEVICE StoredRow row_of_slot(const CacheSide& side, i64 sequence, i64 head, i64 token) {
  const auto& args = *reinterpret_cast<const IndexedCodecArgs*>(reinterpret_cast<const u8*>(&side) - F::kSideAt);
  const i64 slot = static_cast<const typename F::Slot*>(args.numbers)[sequence * args.tokens + token];
  if (slot < 0) return {F::nobody(), F::nobody()};
  return stored_row<typename F::Rows>(side, sequence, head, slot);
}

template <Indexed F>
KV_DEVICE StoredRow stored_row(const CacheSide& side, i64 sequence, i64 head, i64 token) {
  return row_of_slot<F>(side, sequence, head, token);
}
template <class F>
requires Indexed<F> && Paged<F> KV_DEVICE StoredRow stored_row(const CacheSide& side, i64 sequence, i64 head,
                                                               i64 token) {
  return row_of_slot<F>(side, sequence, head, token);
}
template <Indexed F>
KV_DEVICE StoredRow stored_row_behind(const StoredRow&, const CacheSide& side, i64 sequence, i64 head, i64 token,
                                      int by) {
  return row_of_slot<F>(side, sequence, head, token + by);
}
template <class F>
requires Indexed<F> && Paged<F> KV_DEVICE StoredRow stored_row_behind(const StoredRow&, const CacheSide& side,
                                                                      i64 sequence, i64 head, i64 token, int by) {
  return row_of_slot<F>(side, sequence, head, token + by);
}

}  // namespace kv
