// Seeded inputs that are the same on every machine, and the golden input. The distributions of <random> differ between
// standard libraries, so tests do not use them.
// SPDX-License-Identifier: MIT
#pragma once
#include <cmath>
#include <cstdint>
#include <numbers>
#include <vector>

namespace kvjit::test {

// SplitMix64 (Steele, Lea, Flood 2014).
class Rng {
 public:
  explicit Rng(std::uint64_t seed) : state_(seed) {}

  std::uint64_t bits() {
    std::uint64_t z = state_ += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
  }
  double uniform() { return double((bits() >> 11) + 1) * 0x1p-53; }  // (0, 1]
  int below(int n) { return int(bits() % std::uint64_t(n)); }
  double normal() {  // Box-Muller
    const double radius = std::sqrt(-2 * std::log(uniform()));
    return radius * std::cos(2 * std::numbers::pi * uniform());
  }
  std::vector<float> normals(std::size_t count) {
    std::vector<float> x(count);
    for (float& v : x) v = float(normal());
    return x;
  }

 private:
  std::uint64_t state_;
};

// Returns rows like the keys of models: all values have heavy tails, and a few channels are `outlier` times as large.
inline std::vector<float> heavy_tailed_rows(Rng& rng, int rows, int dim, int outlier_channels = 3, float outlier = 12) {
  std::vector<float> gain(std::size_t(dim), 1.0f);
  for (int i = 0; i < outlier_channels; ++i) gain[std::size_t(rng.below(dim))] = outlier;
  std::vector<float> x;
  for (int row = 0; row < rows; ++row)
    for (int i = 0; i < dim; ++i) {
      const double tail = std::sqrt(4 / (-2 * std::log(rng.uniform()) - 2 * std::log(rng.uniform())));  // t, 4 degrees
      x.push_back(gain[std::size_t(i)] * float(rng.normal() * tail));
    }
  return x;
}

// Returns x_i of the golden vectors: ((37 i + 11) mod 101 - 50) / 16, which every float type holds exactly.
inline std::vector<float> golden_input(int count) {
  std::vector<float> x;
  for (int i = 0; i < count; ++i) x.push_back(float((37 * i + 11) % 101 - 50) / 16);
  return x;
}

}  // namespace kvjit::test
