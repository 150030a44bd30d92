// verify_pages: the checks of `kvjit verify` that only paged caches need. It attends over sequences of different
// lengths, one of them empty, in a pool with pages that belong to no sequence. The page tables end in entries that lead
// out of the pool. Rows lie inside a page in each of the ways of PagePlaces. They are written by page table and by
// slots.
// SPDX-License-Identifier: MIT
#pragma once
#include "tools/verify/harness.hpp"

namespace kvjit {

struct PagesVerdict {
  double worst = 0;     // largest relative L2 error of a sequence
  std::string failure;  // the first sequence whose error is above the limit; empty: none
};
// limit: the relative L2 error that a sequence may have, in addition to the bound of sparse_v's error.
Result<PagesVerdict> verify_pages(const std::shared_ptr<Context>& context, const std::shared_ptr<Program>& program,
                                  const Problem& problem, double limit);

}  // namespace kvjit
