// Text of the prefill family.
// SPDX-License-Identifier: MIT
#pragma once
#include "generator/catalogue/registry.hpp"
#include "generator/kernels/prefill/plan.hpp"

namespace kvjit {

Source emit_prefill(const PrefillPlan& plan, const Registry& registry);

}  // namespace kvjit
