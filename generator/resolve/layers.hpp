// Expansion of [layers] (generator/spec/layers.hpp): one spec becomes a spec for each layer, or for each group of
// layers with equal formats.
// SPDX-License-Identifier: MIT
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "generator/base/result.hpp"
#include "generator/catalogue/registry.hpp"
#include "generator/spec/spec.hpp"

namespace kvjit {

// A spec for each layer, with labels "... layer=0", "... layer=1". A spec without [layers] is returned unchanged. Fails
// with bad_input: an unknown policy, or one that does not fit; a condition with an unknown format.
Result<std::vector<Spec>> expand_layers(const Spec& spec, const Registry& registry);

// A spec for each group of layers with equal formats, with labels "... layers=0-3,32-35".
Result<std::vector<Spec>> layer_groups(const Spec& spec, const Registry& registry);

// All specs of a file: [matrix] expanded, and the layers of each combination grouped.
Result<std::vector<Spec>> parse_all(std::string_view toml_text, const std::string& file, const Registry& registry);

}  // namespace kvjit
