// The places of stored rows in paged caches: forms of stored_row and stored_row_behind for formats with pages, instead
// of those of formats/stored_row.cuh.
// SPDX-License-Identifier: MIT
#pragma once
#include "formats/page_tables.cuh"
#include "formats/stored_row.cuh"

namespace kv {

// The row of a token in its page. Without a table, `token` is a slot: page * kPageTokens + place in the page.
template <Paged F>
KV_DEVICE StoredRow stored_row(const CacheSide& side, i64 sequence, i64 head, i64 token) {
  const PageTable& table = table_of<F>(side);
  constexpr int kBits = page_bits(F::kPageTokens);
  i64 page = token >> kBits;
  const i64 place = token & (F::kPageTokens - 1);
  if (table.pages) page = table.pages[sequence * table.row_stride + page];
  u8* const codes =
      side.codes + page * side.codes_sequence_stride + head * side.codes_head_stride + place * side.codes_token_stride;
  if constexpr (F::kIsPlanar)
    return {codes, side.scales + page * side.scales_sequence_stride + head * side.scales_head_stride +
                       place * side.scales_token_stride};
  else
    return {codes, codes};
}
// The row `by` tokens on may be in another page, so it is looked up anew.
template <Paged F>
KV_DEVICE StoredRow stored_row_behind(const StoredRow&, const CacheSide& side, i64 sequence, i64 head, i64 token,
                                      int by) {
  return stored_row<F>(side, sequence, head, token + by);
}

}  // namespace kv
