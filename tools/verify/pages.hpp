// Pages for the harness: a pool with more pages than the sequences use, pages assigned to sequences at random, page
// tables whose unused entries lead out of the pool, and the ways in which engines place rows inside a page.
// SPDX-License-Identifier: MIT
#pragma once
#include <cstdint>
#include <vector>

#include "runtime/launch/kv_layout.hpp"

namespace kvjit {

enum class PagePlaces {
  own,    // the places of side_geometry
  other,  // the other order of head and token: planes as [token][head], whole blocks as [head][token]; pages lie an odd
          // number of 16 bytes apart
  slots,  // [head][token] of records: a row's codes, then its scales (planar) or 6 foreign bytes (whole blocks)
};

// The strides of a pool of `pages` pages, one behind the other. Sequence strides are the bytes from page to page.
SideGeometry pool_geometry(const ProgramSource& source, const SideInfo& side, long long heads, long long pages,
                           PagePlaces places);

// The pages of one side, K or V.
struct PageDeal {
  int page_tokens = 0;       // tokens of a page; 0: a cache without pages
  long long each = 0;        // pages of a sequence
  long long pool = 0;        // pages of the pool; some belong to no sequence
  std::vector<int> entries;  // [sequence][row_stride()]: page numbers

  // Entries from one sequence's row of the table to the next: its pages, and two entries that no kernel may use.
  long long row_stride() const { return each + 2; }
  int page_of(long long sequence, long long token) const {
    return entries[static_cast<std::size_t>(sequence * row_stride() + token / page_tokens)];
  }
  // The page table for sequences of these lengths. No kernel may use entries behind a sequence's pages, so they lead
  // far out of the pool.
  std::vector<int> table(const std::vector<int>& lengths) const;
};
// Pages of a pool for `sequences` sequences of `tokens` tokens: those in use, an eighth more, and one more.
long long pool_pages(int page_tokens, long long sequences, long long tokens);
// Assigns the pages of such a pool to sequences in an order that `seed` shuffles.
PageDeal deal_pages(int page_tokens, long long sequences, long long tokens, std::uint64_t seed);

}  // namespace kvjit
