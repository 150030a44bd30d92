// Runs every reader over accepted inputs and over thousands of mutations with fixed seeds: bytes changed, cut, doubled,
// moved.
// SPDX-License-Identifier: MIT
#include "tests/fuzz/readers.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>

namespace kvjit::test {
namespace {

// Tokens that parsers of numbers and texts often fail on.
const char* const kWords[] = {"-1", "0",  "9223372036854775807", "1e308", "nan",   "\"",
                              "[",  "{}", "\xff\xff\xff\xff",    "\n",    "= 1\n", "[["};

Bytes changed(Bytes bytes, std::mt19937& random) {
  const auto below = [&](std::size_t end) { return end == 0 ? 0 : random() % end; };
  for (std::size_t times = 1 + below(4); times > 0; --times) {
    const auto at = bytes.begin() + static_cast<std::ptrdiff_t>(below(bytes.size()));
    const auto end =
        at + static_cast<std::ptrdiff_t>(below(std::min<std::size_t>(64, static_cast<std::size_t>(bytes.end() - at))));
    const std::string word = kWords[below(std::size(kWords))];
    switch (below(6)) {
      case 0:
        if (at != bytes.end()) *at = static_cast<std::uint8_t>(*at ^ 1u << below(8));
        break;
      case 1:
        if (at != bytes.end()) *at = static_cast<std::uint8_t>(random());
        break;
      case 2:
        bytes.erase(at, end);
        break;
      case 3:
        bytes.resize(static_cast<std::size_t>(at - bytes.begin()));
        break;
      case 4: {
        const Bytes piece(at, end);
        bytes.insert(bytes.begin() + static_cast<std::ptrdiff_t>(below(bytes.size())), piece.begin(), piece.end());
        break;
      }
      default:
        bytes.insert(at, word.begin(), word.end());
    }
  }
  return bytes;
}

TEST_CASE("readers take what is right, and survive what is not") {
  constexpr int kRounds = 400;
  for (const Reader& reader : readers()) {
    INFO(reader.name);
    const std::vector<Bytes> seeds = reader.seeds();
    REQUIRE_FALSE(seeds.empty());
    std::mt19937 random(7);
    int refused = 0;
    for (const Bytes& seed : seeds) CHECK(reader.read(seed));
    for (int round = 0; round < kRounds; ++round)
      refused += !reader.read(changed(seeds[static_cast<std::size_t>(round) % seeds.size()], random));
    CHECK(refused > kRounds / 20);
    CHECK((reader.name == "spec" || !reader.read({})));
  }
}

}  // namespace
}  // namespace kvjit::test
