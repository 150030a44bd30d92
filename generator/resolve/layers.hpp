// Expansion of [layers] (generator/spec/layers.hpp): one spec becomes one spec a layer, or a group of equal layers.
// SPDX-License-Identifier: MIT
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "generator/base/result.hpp"
#include "generator/catalogue/registry.hpp"
#include "generator/spec/spec.hpp"

namespace kvjit {

// One spec for each layer, labels "... layer=0", "... layer=1"; a spec without [layers] gives itself. Fails with
// bad_input: a policy that is not known or does not fit, a condition that names no format.
Result<std::vector<Spec>> expand_layers(const Spec& spec, const Registry& registry);

// The same, with layers that are alike together: labels "... layers=0-3,32-35".
Result<std::vector<Spec>> layer_groups(const Spec& spec, const Registry& registry);

// Everything that a spec file stands for: [matrix] expanded, and each combination's layers grouped.
Result<std::vector<Spec>> parse_all(std::string_view toml_text, const std::string& file, const Registry& registry);

}  // namespace kvjit
