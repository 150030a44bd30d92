// What `kvjit verify` asks of caches of pages beside what it asks of all: ragged sequences, one of them empty, whose
// tables end in entries that lead nowhere, in pools with pages of nobody, with rows placed in pages as engines do;
// written by table and by slots.
// SPDX-License-Identifier: MIT
#pragma once
#include "tools/verify/harness.hpp"

namespace kvjit {

struct PagesVerdict {
  double worst = 0;     // relative L2 of any sequence
  std::string failure;  // of the first that is above the limit; empty: none
};
Result<PagesVerdict> verify_pages(const std::shared_ptr<Context>& context, const std::shared_ptr<Program>& program,
                                  const Problem& problem, double limit);

}  // namespace kvjit
