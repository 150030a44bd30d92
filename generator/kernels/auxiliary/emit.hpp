// The family auxiliary: small kernels around attention and for measuring.
// SPDX-License-Identifier: MIT
#pragma once
#include <string>

#include "generator/catalogue/registry.hpp"
#include "generator/resolve/problem.hpp"
#include "generator/source.hpp"

namespace kvjit {

// Queries into K's domain; is_inverse: outputs back from V's domain.
Source emit_rotate(const Problem& problem, bool is_inverse, const Registry& registry);
// Outputs over parts of a context become one. The problem's features include lse.
Source emit_merge_contexts(const Problem& problem, const Registry& registry);
// Looks at lengths, page tables and slots of a checked call before its kernels run.
Source emit_check(const std::string& arch, const Registry& registry);
// Reads bytes and does nothing with them. unroll: 16-byte loads in flight in a lane.
Source emit_probe(int unroll, const std::string& arch, const Registry& registry);

}  // namespace kvjit
