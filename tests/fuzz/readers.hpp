// Every reader of bytes from outside, as a function of bytes. libfuzzer.cpp and readers_test.cpp (short, with fixed
// seeds) run them. A reader may refuse its input; it must not crash, hang, or refuse without a message.
// SPDX-License-Identifier: MIT
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace kvjit::test {

using Bytes = std::vector<std::uint8_t>;

struct Reader {
  std::string name;
  // Returns whether the bytes were accepted. Aborts if the reader breaks its contract.
  bool (*read)(std::span<const std::uint8_t>);
  std::vector<Bytes> (*seeds)();  // inputs that are accepted
};

const std::vector<Reader>& readers();

}  // namespace kvjit::test
