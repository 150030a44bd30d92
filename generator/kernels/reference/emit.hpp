// Text of the reference family: attention by its formula, in one launch without KV splits.
// SPDX-License-Identifier: MIT
#pragma once
#include "generator/catalogue/registry.hpp"
#include "generator/resolve/problem.hpp"
#include "generator/source.hpp"

namespace kvjit {

Source emit_reference(const Problem& problem, const Registry& registry);

}  // namespace kvjit
