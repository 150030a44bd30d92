// skip() ends a test binary that lacks something it needs. ctest counts the test as skipped and shows the reason.
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
