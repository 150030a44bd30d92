// Prefill in two passes, for a cache whose rows are dearer to unpack beside the products than once ahead of them. The
// first pass dequantizes a chunk of the context to halves, the second attends to them (args/context_chunks.cuh).
// SPDX-License-Identifier: MIT
#pragma once
#include "generator/kernels/families.hpp"
#include "generator/kernels/prefill/plan.hpp"

namespace kvjit {

// Adds both passes to a program. Fails with unsupported if two passes do not serve the problem. one_pass: the plan of
// prefill in one pass; null if that does not serve the problem.
Result<void> add_two_passes(const FamilyInput& input, const PrefillPlan* one_pass, ProgramSource& program);

}  // namespace kvjit
