// The published pseudo-random generators that rotations are drawn from, written from their papers, each giving the same
// numbers as the library named beside it.
// SPDX-License-Identifier: MIT
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <vector>

namespace kvjit {

// numpy.random.default_rng(seed).choice([-1, 1]): one bit a 32-bit half of the PCG64 (XSL-RR 128/64) output, low half
// first, its top bit: 0 -> -1, 1 -> +1. SeedSequence(seed) fills the state.
std::vector<std::int8_t> pcg64_signs(std::uint64_t seed, int skip, int count);

// numpy.random.RandomState(seed): the low bit of each output of MT19937, 0 -> -1, 1 -> +1.
std::vector<std::int8_t> mt19937_signs(std::uint32_t seed, int skip, int count);

// sign[i] = -1 iff bit 31 of (i * 0x9E3779B9 mod 2^32) is set.
std::vector<std::int8_t> golden_signs(int count);

// N(0,1) by Box-Muller from SplitMix64, cosine then sine of each pair, rounded to float32 as llama.cpp PR 21089 does.
std::vector<double> splitmix_normals(std::uint64_t seed, std::size_t count);

// The CPU generator of torch after torch.manual_seed(seed), float32 tensors. MT19937; computed in double, so up to the
// last bit of the float32 that torch returns.
class Torch {
 public:
  explicit Torch(std::uint32_t seed) : engine_(seed) {}
  std::vector<double> rand(int count);   // torch.rand(count)
  std::vector<double> randn(int count);  // torch.randn(count), contiguous

 private:
  double uniform() { return (engine_() & 0xFFFFFF) * 0x1p-24; }
  double wide_uniform();  // of a double: 53 of 64 bits, high word first
  double normal();        // one at a time; the sine half of a pair waits for the next call

  std::mt19937 engine_;  // its seeding is init_genrand
  std::optional<double> waiting_;
};

}  // namespace kvjit
