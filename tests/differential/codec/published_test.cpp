// The quantize kernel on the CPU back-end against images of published writers.
// SPDX-License-Identifier: MIT
#include "tests/differential/codec/published.hpp"

namespace kvjit::test {

TEST_CASE("quantize writes the bytes of published writers") { check_published(open_context(DeviceKind::cpu)); }

TEST_CASE("quantize fills pages as published writers lay them out") {
  check_published_pages(open_context(DeviceKind::cpu));
}

}  // namespace kvjit::test
