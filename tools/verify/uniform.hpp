// Uniform: a generator of seeded random numbers that are the same with every standard library. It is splitmix64
// (Steele, Lea, Flood 2014).
// SPDX-License-Identifier: MIT
#pragma once
#include <cstdint>
#include <vector>

namespace kvjit {

class Uniform {
 public:
  explicit Uniform(std::uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15ull + 7) {}
  // 64 random bits.
  std::uint64_t bits() {
    std::uint64_t z = state_ += 0x9E3779B97F4A7C15ull;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ z >> 27) * 0x94D049BB133111EBull;
    return z ^ z >> 31;
  }
  // A number in [low, high), in steps of 2^-53 of the interval.
  double between(double low, double high) { return low + (high - low) * static_cast<double>(bits() >> 11) * 0x1p-53; }
  // An integer in [0, n).
  int below(int n) { return static_cast<int>(bits() % static_cast<std::uint64_t>(n)); }
  // True with probability 1/n.
  bool once_in(int n) { return below(n) == 0; }
  template <class T>
  const T& one_of(const std::vector<T>& all) {
    return all[static_cast<std::size_t>(bits() % all.size())];
  }

 private:
  std::uint64_t state_;
};

}  // namespace kvjit
