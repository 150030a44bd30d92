// The names of Element and Layout, in the order of their enumerators.
// SPDX-License-Identifier: MIT
#include "generator/base/element.hpp"

namespace kvjit {

std::string_view to_string(Layout layout) {
  constexpr std::string_view kNames[] = {"rows", "planar", "paged"};
  return kNames[int(layout)];
}

std::string_view to_string(Element element) {
  constexpr std::string_view kNames[] = {"f16", "bf16", "f32", "e4m3", "e5m2", "e4m3b15"};
  return kNames[int(element)];
}

}  // namespace kvjit
