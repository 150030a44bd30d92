// Everything that takes bytes from outside, as functions of bytes: for libFuzzer (libfuzzer.cpp) and for the short run
// with fixed seeds (readers_test.cpp). A reader may refuse what it is given; it must not crash, hang, or refuse without
// a word.
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
  // Whether the bytes were taken. Aborts where the reader breaks its promise.
  bool (*read)(std::span<const std::uint8_t>);
  std::vector<Bytes> (*seeds)();  // inputs that are taken
};

const std::vector<Reader>& readers();

}  // namespace kvjit::test
