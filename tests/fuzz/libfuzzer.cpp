// The libFuzzer entry of one reader, built as fuzz_NAME with -D KVJIT_FUZZ=ON and clang++. `fuzz_NAME --seeds DIR`
// writes a seed corpus.
// SPDX-License-Identifier: MIT
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "tests/fuzz/readers.hpp"

namespace {

const kvjit::test::Reader& reader() {
  for (const auto& one : kvjit::test::readers())
    if (one.name == KVJIT_FUZZ_READER) return one;
  std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int* count, char*** arguments) {
  if (*count != 3 || std::strcmp((*arguments)[1], "--seeds") != 0) return 0;
  int number = 0;
  for (const auto& seed : reader().seeds())
    std::ofstream(std::string((*arguments)[2]) + "/" + std::to_string(number++), std::ios::binary)
        .write(reinterpret_cast<const char*>(seed.data()), static_cast<std::streamsize>(seed.size()));
  std::exit(0);
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  (void)reader().read({data, size});
  return 0;
}
