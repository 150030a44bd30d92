// The lattice E8 as a codebook (e8.hpp): its roots, and codes against a search over all of them.
// SPDX-License-Identifier: MIT
#include "generator/formats/e8.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <random>
#include <set>
#include <vector>

using namespace kvjit;

namespace {

constexpr unsigned kAllRoots = 240;

std::array<int, 8> entries_of(unsigned root) {
  std::array<int, 8> entries{};
  for (int i = 0; i < 8; ++i) entries[std::size_t(i)] = e8_root_entry(root, i);
  return entries;
}

double product(unsigned root, const std::vector<float>& x) {
  double sum = 0;
  for (int i = 0; i < 8; ++i) sum += e8_root_entry(root, i) * double(x[std::size_t(i)]);
  return sum;
}

// Returns 15 bounds, of which each is twice the one before. The first is 1.
std::vector<double> doubling_bounds() {
  std::vector<double> bounds;
  for (int i = 0; i < 15; ++i) bounds.push_back(std::ldexp(1, i));
  return bounds;
}

}  // namespace

TEST_CASE("the roots are the 240 shortest vectors of E8") {
  std::set<std::array<int, 8>> roots;
  for (unsigned root = 0; root < kAllRoots; ++root) {
    const std::array<int, 8> entries = entries_of(root);  // four times the root
    int sum = 0, squares = 0;
    for (const int entry : entries) sum += entry, squares += entry * entry;
    CHECK(squares == 2 * 16);
    CHECK(sum % 8 == 0);  // entries of a point of E8 add up to an even number
    roots.insert(entries);
  }
  CHECK(roots.size() == kAllRoots);
  CHECK(entries_of(0) == std::array{-4, -4, 0, 0, 0, 0, 0, 0});
  CHECK(entries_of(111) == std::array{0, 0, 0, 0, 0, 0, 4, 4});
  CHECK(entries_of(112) == std::array{-2, -2, -2, -2, -2, -2, -2, -2});
  CHECK(entries_of(113) == std::array{2, -2, -2, -2, -2, -2, -2, 2});
  for (unsigned root = kAllRoots; root < 256; ++root) CHECK(entries_of(root) == std::array<int, 8>{});
}

TEST_CASE("a code has the root with the largest product, and the axis on which it misses most") {
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  const std::vector<double> bounds = doubling_bounds();
  int pairs = 0;
  for (int trial = 0; trial < 4000; ++trial) {
    std::vector<float> x(8);
    for (float& v : x) v = normal(random) * (trial % 2 ? std::fabs(normal(random)) * 4 : 4.0f);
    const unsigned code = e8_code(x.data(), 0.5f, bounds), root = code & 255u, axis = code >> 8 & 15u;
    double best = 0, squares = 0;
    for (unsigned other = 0; other < kAllRoots; ++other) best = std::max(best, product(other, x));
    for (const float v : x) squares += double(v) * v;
    CHECK(product(root, x) >= best * (1 - 1e-6));
    CHECK((code >> 12) == unsigned(std::clamp(std::floor(std::log2(std::sqrt(squares) / 0.5)) + 1, 0.0, 15.0)));
    pairs += root < 112;
    // The rest is x minus its projection on the root. Entries are four times those of the root, so their square is 32.
    std::vector<double> rest;
    for (int i = 0; i < 8; ++i) rest.push_back(x[std::size_t(i)] - best / 32 * e8_root_entry(root, i));
    const double largest = std::fabs(*std::ranges::max_element(rest, {}, [](double v) { return std::fabs(v); }));
    const double signed_rest = rest[axis / 2] * (axis % 2 ? -1 : 1);
    CHECK(signed_rest >= largest - 1e-5);
  }
  CHECK(pairs > 400);
  CHECK(pairs < 3600);
}

TEST_CASE("values are rounded to integers; short vectors, and a scale of 0, have the code 0") {
  const std::vector<double> radii = {0, 0.25, 0.5, 1.5};
  const std::vector<double> bounds = doubling_bounds();
  // Root 111 is (0, .., 0, 1, 1), axis 13 the negative one of place 6.
  const unsigned axis = 13u << 8;
  CHECK(e8_value(111 | axis | 3u << 12, 6, radii) == 4);  // 3 * 1.5 = 4.5
  CHECK(e8_value(111 | axis | 3u << 12, 7, radii) == 6);
  CHECK(e8_value(111 | axis | 3u << 12, 0, radii) == 0);
  CHECK(e8_value(111 | axis | 2u << 12, 6, radii) == 2);  // 1.5: to the even one
  CHECK(e8_value(111 | axis, 7, radii) == 0);
  CHECK(e8_value(255 | axis | 3u << 12, 6, radii) == -2);  // no root: the axis alone
  std::vector<float> x = {0, 0.9f, 0, 0, 0, 0, 0, 0};
  CHECK(e8_code(x.data(), 1, bounds) == 0);
  x[1] = 1;
  CHECK((e8_code(x.data(), 1, bounds) >> 12) == 1);
  CHECK((e8_code(x.data(), 1, bounds) & 255u) == 3);  // pair (0, 1), both taken for positive
  CHECK(e8_code(x.data(), 0, bounds) == 0);
  x[1] = NAN;
  CHECK(e8_code(x.data(), 1, bounds) == 0);
}
