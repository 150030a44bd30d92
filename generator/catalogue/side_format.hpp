// resolve_side: the format that one side of a spec asks for, made for its head_dim and calibrated.
// SPDX-License-Identifier: MIT
#pragma once
#include <string>

#include "generator/base/result.hpp"
#include "generator/catalogue/registry.hpp"
#include "generator/formats/format.hpp"
#include "generator/spec/spec.hpp"

namespace kvjit {

// One side of a spec as rows of the spec's head_dim store it: its name or its numbers, with its calibration. key: "k"
// or "v".
Result<Format> resolve_side(const SideSpec& side, const Spec& spec, const std::string& key, const Registry& registry);

}  // namespace kvjit
