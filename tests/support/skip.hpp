// A test binary that lacks what it tests with: ctest counts it as skipped, and shows why.
// SPDX-License-Identifier: MIT
#pragma once
#include <cstdio>
#include <cstdlib>
#include <string>

namespace kvjit::test {

[[noreturn]] inline void skip(const std::string& why) {
  constexpr int kSkipped = 77;  // SKIP_RETURN_CODE in tests/CMakeLists.txt
  std::printf("skipped: %s\n", why.c_str());
  std::exit(kSkipped);
}

}  // namespace kvjit::test
