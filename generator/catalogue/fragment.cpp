// split_fragment: see fragment.hpp.
// SPDX-License-Identifier: MIT
#include "generator/catalogue/fragment.hpp"

#include <algorithm>
#include <utility>

namespace kvjit {

Fragment split_fragment(std::string text) {
  constexpr std::string_view kInclude = "#include \"";
  Fragment fragment;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = std::string_view(text).substr(at, end - at);
    at = end + 1;
    if (line.starts_with("#include \"device/cpu.hpp\"")) {
      fragment.body += "// The CPU back-end, device/cpu.hpp, is included first by the host compiler's command line.\n";
    } else if (line.starts_with(kInclude)) {
      fragment.includes.emplace_back(line.substr(kInclude.size(), line.rfind('"') - kInclude.size()));
    } else if (!line.starts_with("#pragma once") && !line.starts_with("// SPDX")) {
      fragment.body.append(line).append(1, '\n');
    }
  }
  fragment.text = std::move(text);
  return fragment;
}

}  // namespace kvjit
