// Page tables. A side of a paged cache is a pool of pages of kPageTokens tokens. A table says which page has the tokens
// from i * kPageTokens on of a sequence.
//
// In paged caches some members of CacheSide have another meaning: sequence strides are the bytes from one page to the
// next, and codes and scales point into page 0. Inside a page, head and token strides are free. So the layouts
// [token][head] and [head][token], and codes beside their scales or in a section of their own, differ only in strides
// and addresses.
//   rows     Rows are whole blocks. Addresses and strides are even, and pages lie a multiple of 16 bytes apart.
//   planar   Rows of codes, and rows of scales from another place of the page on. Addresses and strides are multiples
//            of the largest power of two, up to 16, that divides the bytes of a row. If rows of scales below 16 bytes
//            are dense from token to token, and those of a head in a page fill whole 16 bytes, then the address of the
//            scales and their page and head strides are multiples of 16.
//
// The table of a side lies kTableAt bytes behind that CacheSide among the arguments of a kernel.
// SPDX-License-Identifier: MIT
#pragma once
#include "args/attention.cuh"

namespace kv {

// The page table of one side. Each sequence has at least one entry that can be read. Entries of pages of which the call
// uses no token may hold anything. Attention uses the tokens that some query sees by its position.
struct PageTable {
  // [sequence][row_stride] page numbers. Null: tokens of the call are slots, page * kPageTokens + place in the page.
  const int* pages;
  i64 row_stride;  // entries from one sequence to the next
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

// A side, or a stored format, whose tokens lie in pages.
template <class Side>
concept Paged = requires {
  Side::kPageTokens;
};

// log2 of the tokens of a page, which are a power of two.
constexpr int page_bits(int page_tokens) { return page_tokens > 1 ? 1 + page_bits(page_tokens / 2) : 0; }

}  // namespace kv
