// tools/verify/guarded.cpp: guard bytes around the caller's memory reveal a write outside it, and which byte
// it hit.
// SPDX-License-Identifier: MIT
#include "tools/verify/guarded.hpp"

#include <doctest/doctest.h>

#include <vector>

#include "tests/support/registry.hpp"

namespace kvjit::test {
namespace {

TEST_CASE("bytes around guarded memory are held to what they were") {
  const std::shared_ptr<Backend> backend = must(open_cpu({}));
  constexpr std::size_t kBytes = 1001;
  const Guarded memory = must(Guarded::make(backend, kBytes, 0xFF));
  CHECK(memory.bytes() == kBytes);
  CHECK(memory.pointer() % 256 == 0);
  std::vector<std::uint8_t> mine(kBytes);
  must(backend->copy_to_host(mine.data(), memory.pointer(), kBytes));
  CHECK(mine == std::vector<std::uint8_t>(kBytes, 0xFF));
  must(backend->fill(memory.pointer(), 0, kBytes));
  CHECK(memory.check(*backend, "the output"));

  auto* bytes = reinterpret_cast<std::uint8_t*>(memory.pointer());
  for (const auto& [at, message] : {std::pair<std::ptrdiff_t, const char*>{kBytes, "byte 0 past the end of the output"},
                                    {kBytes + Guarded::kGuardBytes - 1, "byte 4095 past the end of the output"},
                                    {-1, "the byte 1 ahead of the output"}}) {
    bytes[at] ^= 1;
    const auto found = memory.check(*backend, "the output");
    REQUIRE_FALSE(found);
    CHECK(found.error().code == Code::differs);
    CHECK(found.error().message.find(message) != std::string::npos);
    bytes[at] ^= 1;
  }
  CHECK(memory.check(*backend, "the output"));
  CHECK(Guarded().check(*backend, "nothing"));
}

}  // namespace
}  // namespace kvjit::test
