// Text of the auxiliary family: small kernels around attention, and the probe of `kvjit bench`.
// SPDX-License-Identifier: MIT
#pragma once
#include <string>

#include "generator/catalogue/registry.hpp"
#include "generator/resolve/problem.hpp"
#include "generator/source.hpp"

namespace kvjit {

// Rotates queries into K's rotated domain; is_inverse: outputs out of V's.
Source emit_rotate(const Problem& problem, bool is_inverse, const Registry& registry);
// Merges outputs over parts of a context into the output over all of it. The problem's features include lse.
Source emit_merge_contexts(const Problem& problem, const Registry& registry);
Source emit_mask_ranges(const std::string& arch, const Registry& registry);
// Checks lengths, page tables and slots of a checked call before its kernels run.
Source emit_check(const std::string& arch, const Registry& registry);
// Reads bytes and does nothing with them. unroll: 16-byte loads that a lane has in flight.
Source emit_probe(int unroll, const std::string& arch, const Registry& registry);
// Counts the cycles of a multiprocessor over a time.
Source emit_clock(const std::string& arch, const Registry& registry);

}  // namespace kvjit
