// runtime/launch/rope.cpp: the rotary frequencies that kernels get, and YaRN.
// SPDX-License-Identifier: MIT
#include "runtime/launch/rope.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <numbers>

namespace kvjit {
namespace {

constexpr double kTurn = 2 * std::numbers::pi;

TEST_CASE("pairs turn by powers of the base, times the scale") {
  Rope rope;
  rope.dims = 8, rope.base = 10000, rope.scale = 0.5;
  const auto args = rope_args(rope);
  REQUIRE(args);
  for (int i = 0; i < 4; ++i) CHECK(args->frequencies[i] * kTurn == doctest::Approx(0.5 * std::pow(10, -i)));
  CHECK(args->frequencies[4] == 0);
  CHECK(args->magnitude == 1);
}

// A model trained for 4096 tokens, extended four times: dims 128, base 10000. Over these tokens channel pair 0 makes
// 652 full rotations, channel pair 63 less than one. The ramp runs from pair floor(20.9) to ceil(45.03), computed by
// hand from 128 log(4096 / (rotations 2 pi)) / (2 log 10000).
TEST_CASE("YaRN keeps what turns often, scales what hardly turns, and mixes between") {
  Rope rope;
  rope.dims = 128, rope.scale = 0.25, rope.extrapolation = 1, rope.trained_tokens = 4096;
  const auto args = rope_args(rope);
  REQUIRE(args);
  const auto kept = [&](int pair) { return args->frequencies[pair] * kTurn / std::pow(10000, -2.0 * pair / 128); };
  CHECK(kept(0) == doctest::Approx(1));
  CHECK(kept(20) == doctest::Approx(1));
  CHECK(kept(33) == doctest::Approx(0.25 + 0.75 * (1 - 13.0 / 26)));
  CHECK(kept(46) == doctest::Approx(0.25));
  CHECK(kept(63) == doctest::Approx(0.25));
  rope.extrapolation = 0;
  CHECK(rope_args(rope)->frequencies[0] * kTurn == doctest::Approx(0.25));
}

TEST_CASE("what no rope can be is refused") {
  const auto refusal = [](auto change) {
    Rope rope;
    rope.dims = 64;
    change(rope);
    const auto args = rope_args(rope);
    return args ? std::string("none") : args.error().message;
  };
  CHECK(refusal([](Rope& r) { r.dims = 63; }) == "rope.dims 63; even numbers from 2 to 512 are possible");
  CHECK(refusal([](Rope& r) { r.dims = 514; }) == "rope.dims 514; even numbers from 2 to 512 are possible");
  CHECK(refusal([](Rope& r) { r.scale = -1; }) == "rope.scale -1; a positive number is needed");
  CHECK(refusal([](Rope& r) { r.base = INFINITY; }) == "rope.base inf; a number above 1 is needed");
}

}  // namespace
}  // namespace kvjit
