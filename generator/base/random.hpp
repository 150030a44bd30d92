// Pseudo-random generators that published rotations are drawn from. They are written from their papers, and each gives
// the same numbers as the library that is named beside it.
// SPDX-License-Identifier: MIT
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <vector>

namespace kvjit {

// `count` signs behind the first `skip`, as numpy.random.default_rng(seed).choice([-1, 1]) draws them. A 64-bit output
// of PCG64 (XSL-RR 128/64) gives two signs: the top bit of its low 32 bits, then that of its high 32 bits. 0 is -1, 1
// is +1. SeedSequence(seed) fills the state.
std::vector<std::int8_t> pcg64_signs(std::uint64_t seed, int skip, int count);

// `count` signs behind the first `skip`, from numpy.random.RandomState(seed): the low bit of each output of MT19937. 0
// is -1, 1 is +1.
std::vector<std::int8_t> mt19937_signs(std::uint32_t seed, int skip, int count);

// sign[i] is -1 if bit 31 of (i * 0x9E3779B9 mod 2^32) is set, else +1.
std::vector<std::int8_t> golden_signs(int count);

// Numbers of N(0,1) by Box-Muller from SplitMix64: the cosine and then the sine of each pair, rounded to float32 as in
// llama.cpp PR 21089.
std::vector<double> splitmix_normals(std::uint64_t seed, std::size_t count);

// The CPU generator of torch after torch.manual_seed(seed), for float32 tensors. It is MT19937. Numbers are computed in
// double, so they agree with torch's float32 up to the last bit.
class Torch {
 public:
  explicit Torch(std::uint32_t seed) : engine_(seed) {}
  std::vector<double> rand(int count);   // torch.rand(count)
  std::vector<double> randn(int count);  // torch.randn(count), contiguous

 private:
  double uniform() { return (engine_() & 0xFFFFFF) * 0x1p-24; }
  double wide_uniform();  // uniform in [0, 1) with 53 bits, from two outputs, the high word first
  double normal();        // one number of N(0,1); the second of a Box-Muller pair waits for the next call

  std::mt19937 engine_;            // its constructor seeds as init_genrand does
  std::optional<double> waiting_;  // the second number of the last pair
};

}  // namespace kvjit
