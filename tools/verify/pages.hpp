// Pages for a trial: a pool with more pages than are used, dealt at random; tables whose unused entries lead nowhere;
// and the ways in which engines place rows inside a page.
// SPDX-License-Identifier: MIT
#pragma once
#include <cstdint>
#include <vector>

#include "runtime/launch/kv_layout.hpp"

namespace kvjit {

enum class PagePlaces {
  own,    // as side_geometry has them
  other,  // planes as [token][head], whole blocks as [head][token]
  slots,  // [head][token] of slots: a row's codes, then its scales or some bytes of somebody else's
};

// One page after the other, `pages` of them.
SideGeometry pool_geometry(const ProgramSource& source, const SideFacts& side, long long heads, long long pages,
                           PagePlaces places);

// The pages of one side.
struct PageDeal {
  int page_tokens = 0;       // 0: a cache without pages
  long long each = 0;        // pages of a sequence
  long long pool = 0;        // pages there are; some belong to nobody
  std::vector<int> entries;  // [sequence][row_stride()]

  long long row_stride() const { return each + 2; }
  int page_of(long long sequence, long long token) const {
    return entries[static_cast<std::size_t>(sequence * row_stride() + token / page_tokens)];
  }
  // For sequences of these lengths: entries behind their pages must not be used, and lead far out of the pool.
  std::vector<int> table(const std::vector<int>& lengths) const;
};
long long pool_pages(int page_tokens, long long sequences, long long tokens);
PageDeal deal_pages(int page_tokens, long long sequences, long long tokens, std::uint64_t seed);

}  // namespace kvjit
