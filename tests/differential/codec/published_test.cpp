// The quantize kernel on the CPU back-end against images of published writers.
// SPDX-License-Identifier: MIT
#include "tests/differential/codec/published.hpp"

namespace kvjit::test {

TEST_CASE("quantize writes the bytes of published writers") { check_published(open_context(DeviceKind::cpu)); }

}  // namespace kvjit::test
