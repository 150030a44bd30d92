// The family reference: attention as the formula says it, one launch, no split.
// SPDX-License-Identifier: MIT
#pragma once
#include "generator/catalogue/registry.hpp"
#include "generator/resolve/problem.hpp"
#include "generator/source.hpp"

namespace kvjit {

Source emit_reference(const Problem& problem, const Registry& registry);

}  // namespace kvjit
