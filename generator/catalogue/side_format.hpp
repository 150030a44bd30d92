// resolve_side: from one side of a spec to its format, for the spec's head_dim and calibrated.
// SPDX-License-Identifier: MIT
#pragma once
#include <string>

#include "generator/base/result.hpp"
#include "generator/catalogue/registry.hpp"
#include "generator/formats/format.hpp"
#include "generator/spec/spec.hpp"

namespace kvjit {

// The format of one side, which the spec states by name or inline, with its calibration. key: "k" or "v". Fails with
// bad_input.
Result<Format> resolve_side(const SideSpec& side, const Spec& spec, const std::string& key, const Registry& registry);

}  // namespace kvjit
