// Paged caches: a side is a pool of pages of kPageTokens tokens, and a table says which page has a sequence's tokens
// from i * kPageTokens on. A CacheSide is read anew: its sequence strides are the bytes from page to page, and codes
// and scales point into page 0. Inside a page head and token strides are free, so that [token][head], [head][token],
// slots of codes beside scales, and sections apart are all only numbers.
//   rows     whole blocks. Even addresses and strides; pages a multiple of 16 bytes apart.
//   planar   rows of codes, and rows of scales from another place of the page on. Addresses and strides are multiples of the largest
//            power of two, up to 16, that divides a row's bytes; of 16, where scales are dense from token to token.
//
// Tables stand behind the other arguments of a call: that of a side kTableAt bytes behind it.
// SPDX-License-Identifier: MIT
#pragma once
#include "args/attention.cuh"

namespace kv {

// Every sequence has an entry at least. Only entries of pages with tokens are used, others may be anything.
struct PageTable {
  const int*
      pages;  // [sequence][row_stride]; null, of quantize: tokens are slots, page * kPageTokens + place in the page
  i64 row_stride;  // entries
};
struct PagedAttentionArgs : AttentionArgs {
  PageTable k_table, v_table;
};
struct PagedAppendArgs : AppendArgs {
  PageTable k_table, v_table;
};
struct PagedCodecArgs : CodecArgs {
  PageTable table;
};

// A side or a stored format whose tokens lie in pages.
template <class Side>
concept Paged = requires {
  Side::kPageTokens;
};

constexpr int page_bits(int page_tokens) { return page_tokens > 1 ? 1 + page_bits(page_tokens / 2) : 0; }

}  // namespace kv
