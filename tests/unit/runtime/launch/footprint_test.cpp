// runtime/launch/footprint.cpp: which tensors overlap, judged by lists of their bytes.
// SPDX-License-Identifier: MIT
#include "runtime/launch/footprint.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <random>
#include <set>
#include <vector>

namespace kvjit {
namespace {

struct Tensor {
  int begin = 0, row = 1;
  std::array<std::array<int, 2>, 3> dimensions{};  // stride, count
  Footprint footprint() const {
    return {"x",
            reinterpret_cast<const void*>(std::uintptr_t(begin)),
            row,
            0,
            {{dimensions[0][0], dimensions[0][1]},
             {dimensions[1][0], dimensions[1][1]},
             {dimensions[2][0], dimensions[2][1]}}};
  }
  std::vector<int> bytes() const {
    std::vector<int> all;
    for (int a = 0; a < dimensions[0][1]; ++a)
      for (int b = 0; b < dimensions[1][1]; ++b)
        for (int c = 0; c < dimensions[2][1]; ++c)
          for (int i = 0; i < row; ++i)
            all.push_back(begin + a * dimensions[0][0] + b * dimensions[1][0] + c * dimensions[2][0] + i);
    return all;
  }
};

bool has_common_byte(const Tensor& x, const Tensor& y) {
  const std::vector<int> all = y.bytes();
  const std::set<int> bytes(all.begin(), all.end());
  for (const int byte : x.bytes())
    if (bytes.count(byte)) return true;
  return false;
}

std::mt19937 engine(11);  // NOLINT(cert-msc51-cpp): every run tests the same tensors
int below(int count) { return std::uniform_int_distribution<int>(0, count - 1)(engine); }

Tensor any_tensor() {
  Tensor made{1000 + below(60), 1 + below(4), {}};
  for (auto& [stride, count] : made.dimensions) stride = below(60) - 20, count = 1 + below(4);
  return made;
}

// All three dimensions nested in each other, with gaps, and some of them backwards.
Tensor nested_tensor() {
  Tensor made{1000 + below(120), 1 + below(4), {}};
  const int strides[] = {60, 12, 4};
  for (std::size_t i = 0; i < 3; ++i) made.dimensions[i] = {below(2) ? strides[i] : -strides[i], 2 + below(2)};
  return made;
}

}  // namespace

TEST_CASE("footprints that share a byte are seen, and so are rows that share one") {
  int shared = 0, apart = 0, repeated = 0;
  for (int i = 0; i < 20000; ++i) {
    const Tensor x = any_tensor(), y = any_tensor();
    const bool is_shared = has_common_byte(x, y);
    shared += is_shared;
    if (is_shared) REQUIRE(overlap(x.footprint(), y.footprint()));
    apart += !overlap(x.footprint(), y.footprint());
    const std::vector<int> all = x.bytes();
    const bool is_repeated = std::set<int>(all.begin(), all.end()).size() < all.size();
    repeated += is_repeated;
    if (is_repeated) REQUIRE(x.footprint().overlaps_itself());
  }
  CHECK(shared > 1000);
  CHECK(apart > 1000);
  CHECK(repeated > 1000);
}

TEST_CASE("tensors that take turns in memory by the same strides overlap only where they share a byte") {
  int taking_turns = 0;
  for (int i = 0; i < 20000; ++i) {
    const Tensor x = nested_tensor(), y = nested_tensor();
    CHECK_FALSE(x.footprint().overlaps_itself());
    const bool is_shared = has_common_byte(x, y);
    REQUIRE(overlap(x.footprint(), y.footprint()) == is_shared);
    const Wide distance = Wide{y.begin} - x.begin;
    taking_turns += !is_shared && (distance < 0 ? -distance : distance) < x.footprint().bytes();
  }
  CHECK(taking_turns > 1000);
}

TEST_CASE("a refusal names what is written, and what it overlaps") {
  const int memory[4] = {};
  const Footprint out("out", memory, 8, 0, {}), q("q", memory, 8, 4, {}), k("k", memory, 4, 8, {});
  CHECK(check_apart(out, {k}));
  const auto refused = check_apart(out, {k, q});
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == Code::bad_input);
  CHECK(refused.error().message == "out overlaps q; what a call writes must be apart from it");
}

}  // namespace kvjit
