// The lattice E8 as a codebook of vectors (e8.hpp).
// SPDX-License-Identifier: MIT
#include "generator/formats/e8.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

namespace kvjit {
namespace {

constexpr unsigned kPairRoots = 112, kRoots = 240;

// Returns the number of a pair of places a < b, in lexical order.
unsigned pair_number(unsigned a, unsigned b) { return a * (15 - a) / 2 + b - a - 1; }

// Returns the root with the largest product with a vector of signs (bit i set: not negative) and magnitudes.
unsigned nearest_root(unsigned signs, const float (&magnitude)[kE8Dim]) {
  const float* const least = std::min_element(magnitude, magnitude + kE8Dim);
  const float* const largest = std::max_element(magnitude, magnitude + kE8Dim);
  const float* second = largest == magnitude ? magnitude + 1 : magnitude;
  for (const float* m = second + 1; m < magnitude + kE8Dim; ++m)
    if (m != largest && *m > *second) second = m;
  const bool is_odd = std::popcount(~signs & 255u) % 2 == 1;
  float sum = std::accumulate(magnitude, magnitude + kE8Dim, 0.0f);
  if (is_odd) sum -= 2 * *least;
  if (!(*largest + *second >= sum * 0.5f)) {
    if (is_odd) signs ^= 1u << (least - magnitude);
    return kPairRoots + (signs & 127u);
  }
  const auto a = unsigned(std::min(largest, second) - magnitude), b = unsigned(std::max(largest, second) - magnitude);
  return pair_number(a, b) * 4 + 2 * (signs >> a & 1u) + (signs >> b & 1u);
}

// Returns the axis along which root and unit vector differ most, the first of equal ones.
unsigned farthest_axis(unsigned root, const float (&unit)[kE8Dim]) {
  constexpr float kQuarter = 0.70710677f / 4;  // of 1 / |root|
  float along = 0;
  for (int i = 0; i < kE8Dim; ++i) along += unit[i] * (float(e8_root_entry(root, i)) * kQuarter);
  float largest = -1;
  unsigned axis = 0;
  for (int i = 0; i < kE8Dim; ++i) {
    const float rest = unit[i] - along * (float(e8_root_entry(root, i)) * kQuarter);
    if (std::fabs(rest) > largest) largest = std::fabs(rest), axis = 2 * unsigned(i) + unsigned(rest < 0);
  }
  return axis;
}

}  // namespace

int e8_root_entry(unsigned root, int i) {
  if (root >= kRoots) return 0;
  if (root >= kPairRoots) {
    const unsigned signs = root - kPairRoots;
    const bool is_last_positive = std::popcount(signs) % 2 == 1;  // seven signs: then an even number is negative
    return (i < 7 ? signs >> i & 1u : unsigned(is_last_positive)) ? 2 : -2;
  }
  unsigned a = 0;
  while (a < 6 && pair_number(a + 1, a + 2) <= root / 4) ++a;
  const unsigned b = root / 4 - pair_number(a, a + 1) + a + 1;
  if (i == int(a)) return root & 2u ? 4 : -4;
  return i == int(b) ? root & 1u ? 4 : -4 : 0;
}

double e8_value(unsigned code, int i, std::span<const double> radii) {
  const int axis = int(code >> 8 & 15u);
  const int whole = e8_root_entry(code & 255u, i) + (axis / 2 == i ? axis % 2 ? -1 : 1 : 0);
  return std::nearbyint(float(whole) * float(radii[code >> 12 & 15u]));
}

unsigned e8_code(const float* x, float d, std::span<const double> bounds) {
  float squares = 0;
  for (int i = 0; i < kE8Dim; ++i) squares += x[i] * x[i];
  const float length = std::sqrt(squares);
  unsigned radius = 0;
  for (const double bound : bounds) radius += length >= float(bound) * d;
  if (radius == 0 || !(d > 0)) return 0;
  const float inverse = 1.0f / length;
  float unit[kE8Dim], magnitude[kE8Dim];
  unsigned signs = 0;
  for (int i = 0; i < kE8Dim; ++i) {
    unit[i] = x[i] * inverse, magnitude[i] = std::fabs(unit[i]);
    signs |= unsigned(unit[i] >= 0) << i;
  }
  const unsigned root = nearest_root(signs, magnitude);
  return root | (radius << 4 | farthest_axis(root, unit)) << 8;
}

}  // namespace kvjit
