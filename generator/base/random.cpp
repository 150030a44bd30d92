// The generators are PCG64 and SeedSequence (M. E. O'Neill), MT19937 (Matsumoto, Nishimura) and SplitMix64 (Steele,
// Lea, Flood). The functions turn their outputs into signs, uniform and normal numbers as numpy, torch and llama.cpp
// do.
// SPDX-License-Identifier: MIT
#include "generator/base/random.hpp"

#include <array>
#include <bit>
#include <cmath>
#include <numbers>

namespace kvjit {
namespace {

__extension__ using Wide = unsigned __int128;

// The hash of SeedSequence. Each use also advances the constant.
struct SeedHash {
  std::uint32_t constant, multiplier;
  std::uint32_t operator()(std::uint32_t value) {
    value ^= constant;
    constant *= multiplier;
    value *= constant;
    return value ^ value >> 16;
  }
};

// PCG64 with its state and increment of 128 bits, which SeedSequence derives from the seed through a pool of four
// words.
class Pcg64 {
 public:
  explicit Pcg64(std::uint64_t seed) {
    SeedHash hash{0x43b0d7e5u, 0x931e8875u};
    std::array<std::uint32_t, 4> pool{};
    for (std::size_t i = 0; i < 4; ++i) pool[i] = hash(i < 2 ? std::uint32_t(seed >> 32 * i) : 0);
    for (std::size_t from = 0; from < 4; ++from)
      for (std::size_t to = 0; to < 4; ++to) {
        if (from == to) continue;
        const std::uint32_t mixed = 0xca01f9ddu * pool[to] - 0x4973f715u * hash(pool[from]);
        pool[to] = mixed ^ mixed >> 16;
      }
    SeedHash draw{0x8b51f9ddu, 0x58f38dedu};
    std::array<Wide, 4> word{};
    for (std::size_t i = 0; i < 8; ++i) word[i / 2] |= Wide(draw(pool[i % 4])) << 32 * (i % 2);
    increment_ = (word[2] << 64 | word[3]) << 1 | 1;
    state_ = increment_ + (word[0] << 64 | word[1]);
    advance();
  }

  std::uint64_t next() {
    advance();
    return std::rotr(std::uint64_t(state_ >> 64) ^ std::uint64_t(state_), int(state_ >> 122));
  }

 private:
  void advance() { state_ = state_ * (Wide(0x2360ED051FC65DA4u) << 64 | 0x4385DF649FCCF645u) + increment_; }
  Wide state_ = 0, increment_ = 0;
};

struct SplitMix64 {
  std::uint64_t state;
  double uniform() {  // the middle of one of 2^53 cells of (0, 1)
    std::uint64_t z = state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return (double((z ^ z >> 31) >> 11) + 0.5) * 0x1p-53;
  }
};

constexpr double kTwoPi = 2 * std::numbers::pi;

}  // namespace

std::vector<std::int8_t> pcg64_signs(std::uint64_t seed, int skip, int count) {
  Pcg64 generator(seed);
  std::vector<std::int8_t> signs;
  std::uint64_t word = 0;
  for (int draw = 0; draw < skip + count; ++draw) {
    if (draw % 2 == 0) word = generator.next();
    const bool is_plus = (draw % 2 == 0 ? word >> 31 : word >> 63) & 1;
    if (draw >= skip) signs.push_back(is_plus ? 1 : -1);
  }
  return signs;
}

std::vector<std::int8_t> mt19937_signs(std::uint32_t seed, int skip, int count) {
  std::mt19937 generator(seed);
  generator.discard(std::uint64_t(skip));
  std::vector<std::int8_t> signs;
  for (int i = 0; i < count; ++i) signs.push_back(generator() & 1 ? 1 : -1);
  return signs;
}

std::vector<std::int8_t> golden_signs(int count) {
  std::vector<std::int8_t> signs;
  for (int i = 0; i < count; ++i) signs.push_back(std::uint32_t(i) * 0x9E3779B9u >> 31 ? -1 : 1);
  return signs;
}

std::vector<double> splitmix_normals(std::uint64_t seed, std::size_t count) {
  SplitMix64 generator{seed};
  std::vector<double> normals;
  while (normals.size() < count) {
    const double radius = std::sqrt(-2 * std::log(generator.uniform()));
    const double angle = kTwoPi * generator.uniform();
    normals.push_back(float(radius * std::cos(angle)));
    normals.push_back(float(radius * std::sin(angle)));
  }
  normals.resize(count);
  return normals;
}

std::vector<double> Torch::rand(int count) {
  std::vector<double> values;
  for (int i = 0; i < count; ++i) values.push_back(uniform());
  return values;
}

// torch draws fewer than 16 numbers one by one. From 16 on it draws uniform numbers and applies Box-Muller to 16 at a
// time, eight radii and then eight angles. If the count is no multiple of 16, the last 16 numbers are drawn anew.
std::vector<double> Torch::randn(int count) {
  std::vector<double> values;
  if (count < 16) {
    for (int i = 0; i < count; ++i) values.push_back(normal());
    return values;
  }
  const auto box_muller = [](double* block) {
    for (int i = 0; i < 8; ++i) {
      const double radius = std::sqrt(-2 * std::log(1 - block[i])), angle = kTwoPi * block[i + 8];
      block[i] = radius * std::cos(angle);
      block[i + 8] = radius * std::sin(angle);
    }
  };
  values = rand(count);
  for (int at = 0; at + 16 <= count; at += 16) box_muller(&values[std::size_t(at)]);
  if (count % 16) {
    double* last = &values[std::size_t(count - 16)];
    for (int i = 0; i < 16; ++i) last[i] = uniform();
    box_muller(last);
  }
  return values;
}

double Torch::wide_uniform() {
  const std::uint64_t high = engine_(), low = engine_();
  return double((high << 32 | low) & ((std::uint64_t(1) << 53) - 1)) * 0x1p-53;
}

double Torch::normal() {
  if (waiting_) {
    const double value = *waiting_;
    waiting_.reset();
    return value;
  }
  const double angle = kTwoPi * wide_uniform();
  const double radius = std::sqrt(-2 * std::log1p(-wide_uniform()));
  waiting_ = radius * std::sin(angle);
  return radius * std::cos(angle);
}

}  // namespace kvjit
