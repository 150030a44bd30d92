// Fragment: a file of templates/ as kernels take it. Emitted kernels include nothing, so a fragment is split once, when
// the registry reads it, into the names of what it includes and the lines that a flat text keeps.
// SPDX-License-Identifier: MIT
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace kvjit {

struct Fragment {
  std::string text;                   // the whole file
  std::vector<std::string> includes;  // "device/simt.cuh", in the order of the file; they stand ahead of the body
  std::string body;                   // without includes, `#pragma once` and the line of the licence
};

Fragment split_fragment(std::string text);

}  // namespace kvjit
