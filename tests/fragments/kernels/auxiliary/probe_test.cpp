// templates/kernels/auxiliary/probe.cuh: for any grid the probe must read each of its vectors exactly once, and
// nothing else.
// SPDX-License-Identifier: MIT
#include "kernels/auxiliary/probe.cuh"

#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

#include "runtime/device/cpu/block_scheduler.hpp"

namespace kvjit {
namespace {

constexpr kv::u32 kNeedle = 0x1234567;
constexpr int kThreads = 32;

template <int kLoads>
struct ProbePlan {
  static constexpr int kThreads = kvjit::kThreads, kUnroll = kLoads;
};

// Sets one word and zeros the rest. The probe reports the word if it was read an odd number of times.
template <int kLoads>
bool finds(int vectors, int blocks, std::size_t word) {
  std::vector<kv::u32> words(static_cast<std::size_t>(vectors + 2) * 4, 0);
  auto* from = words.data();
  while (reinterpret_cast<std::uintptr_t>(from) % 16 != 0) ++from;
  from[word] = kNeedle;
  kv::u32 found = 0;
  const kv::ProbeArgs args{reinterpret_cast<const kv::u8*>(from), vectors, kThreads * blocks, &found, kNeedle};
  const auto body = [&] { kv::probe<ProbePlan<kLoads>>(args); };
  REQUIRE(run_grid(body, {static_cast<unsigned>(blocks)}, kThreads, 0));
  return found == kNeedle;
}

TEST_CASE("the probe reads each of its words, and none behind them") {
  for (const int blocks : {1, 2})
    for (const int vectors : {0, 1, kThreads - 1, 2 * kThreads * blocks, 4 * kThreads * blocks + 3, 9 * kThreads + 5}) {
      CAPTURE(blocks);
      CAPTURE(vectors);
      std::size_t missed = 0;
      for (std::size_t word = 0; word < 4 * static_cast<std::size_t>(vectors); word += 3)
        missed += !finds<2>(vectors, blocks, word) + !finds<4>(vectors, blocks, word);
      CHECK(missed == 0);
      CHECK_FALSE(finds<2>(vectors, blocks, 4 * static_cast<std::size_t>(vectors)));
    }
}

}  // namespace
}  // namespace kvjit
