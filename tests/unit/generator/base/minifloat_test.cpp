// generator/base/minifloat.cpp: conversions of small floats over their whole range, against a second definition of
// rounding.
// SPDX-License-Identifier: MIT
#include "generator/base/minifloat.hpp"

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "generator/formats/codebook.hpp"

using namespace kvjit;

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity(), kNaN = std::numeric_limits<float>::quiet_NaN();

// Checks every finite code from 0 to `last`, the midpoint to its upper neighbour, and the floats just below and above
// the midpoint.
template <class To, class From>
void check_nearest_even(To to, From from, int last) {
  for (int code = 0; code < last; ++code) {
    const float low = from(code), high = from(code + 1), middle = low + (high - low) / 2;
    REQUIRE(low < high);
    REQUIRE(to(low) == code);
    REQUIRE(to(middle) == code + (code & 1));
    REQUIRE(to(std::nextafter(middle, low)) == code);
    REQUIRE(to(std::nextafter(middle, high)) == code + 1);
  }
}

}  // namespace

TEST_CASE("fp16: every half survives the round trip, and floats round to the nearest even half") {
  for (int h = 0; h < 65536; ++h) {
    const float x = float_from_f16(std::uint16_t(h));
    if (std::isnan(x)) {
      CHECK(std::isnan(float_from_f16(f16_from_float(x))));
      continue;
    }
    REQUIRE(f16_from_float(x) == h);
  }
  check_nearest_even(f16_from_float, float_from_f16, 0x7BFF);
  CHECK(f16_from_float(65519.996f) == 0x7BFF);
  CHECK(f16_from_float(65520.0f) == 0x7C00);
}

TEST_CASE("bf16: the nearest even upper half of a float") {
  CHECK(bf16_from_float(std::bit_cast<float>(0x3F808000u)) == 0x3F80);
  CHECK(bf16_from_float(std::bit_cast<float>(0x3F818000u)) == 0x3F82);
  CHECK(bf16_from_float(std::bit_cast<float>(0x3F808001u)) == 0x3F81);
  CHECK(std::isnan(float_from_bf16(bf16_from_float(std::bit_cast<float>(0x7F800001u)))));
}

TEST_CASE("E4M3: nearest even, saturating, one NaN") {
  check_nearest_even(e4m3_from_float, float_from_e4m3, 0x7E);
  CHECK(float_from_e4m3(0x01) == 0x1p-9f);
  CHECK(float_from_e4m3(0x08) == 0x1p-6f);
  CHECK(float_from_e4m3(0x38) == 1);
  CHECK(float_from_e4m3(0x7E) == 448);
  CHECK(e4m3_from_float(1e30f) == 0x7E);
  CHECK(e4m3_from_float(-kInfinity) == 0xFE);
  CHECK(e4m3_from_float(-0.0f) == 0x80);
  CHECK(std::isnan(float_from_e4m3(e4m3_from_float(kNaN))));
}

TEST_CASE("E5M2: nearest even, infinities") {
  check_nearest_even(e5m2_from_float, float_from_e5m2, 0x7B);
  CHECK(float_from_e5m2(0x7B) == 57344);
  CHECK(e5m2_from_float(61439.996f) == 0x7B);
  CHECK(e5m2_from_float(61440.0f) == 0x7C);
  CHECK(std::isinf(float_from_e5m2(e5m2_from_float(-kInfinity))));
  CHECK(std::isnan(float_from_e5m2(e5m2_from_float(kNaN))));
}

// Triton's steps: a half rounded towards zero, at most 1.75 in magnitude, doubled, and half of its lower byte added.
std::uint8_t as_triton_does(float x) {
  std::uint16_t half = std::isnan(x) ? 0x7FFF : f16_from_float(x);
  if (!std::isnan(x) && std::fabs(float_from_f16(half)) > std::fabs(x)) --half;
  const unsigned size = std::min(half & 0x7FFFu, 0x3F00u);
  return std::uint8_t(((half & 0x8000u) | (size * 2 + 0x80)) >> 8);
}

TEST_CASE("E4M3 with a bias of 15: the bytes of Triton") {
  CHECK(float_from_e4m3b15(0x78) == 1);
  CHECK(float_from_e4m3b15(0x01) == 0x1p-17f);
  CHECK(e4m3b15_from_float(100) == 0x7E);
  CHECK(float_from_e4m3b15(0xFE) == -1.75f);
  for (const float f : {kInfinity, -kInfinity, kNaN, 0.0f, -0.0f, 1e-30f, 1.8e-8f}) {
    CAPTURE(f);
    CHECK(e4m3b15_from_float(f) == as_triton_does(f));
  }
  int wrong = 0;
  for (float f = 0x1p-19f; f < 2; f *= 1.00007f)
    for (const float x : {f, -f}) wrong += e4m3b15_from_float(x) != as_triton_does(x);
  for (unsigned code = 0; code < 0x7E; ++code) {
    const float middle = (float_from_e4m3b15(std::uint8_t(code)) + float_from_e4m3b15(std::uint8_t(code + 1))) / 2;
    for (const float x : {middle, std::nextafter(middle, 0.0f)}) wrong += e4m3b15_from_float(x) != as_triton_does(x);
  }
  CHECK(wrong == 0);
}

TEST_CASE("UE4M3: halves go up, nothing is negative, and what the published writer takes for an overflow") {
  for (int code = 8; code < 0x77; ++code) {
    const float low = float_from_ue4m3(std::uint8_t(code)), high = float_from_ue4m3(std::uint8_t(code + 1));
    const float middle = low + (high - low) / 2;
    REQUIRE(ue4m3_from_float(low) == code);
    REQUIRE(ue4m3_from_float(middle) == code + 1);
    REQUIRE(ue4m3_from_float(std::nextafter(middle, low)) == code);
  }
  CHECK(ue4m3_from_float(0.4f / 512) == 0);
  CHECK(ue4m3_from_float(0.5f / 512) == 1);
  CHECK(ue4m3_from_float(7.4f / 512) == 7);
  CHECK(ue4m3_from_float(7.9f / 512) == 7);  // the published writer does not round up to 8
  CHECK(ue4m3_from_float(247.9f) == 0x77);
  CHECK(ue4m3_from_float(248) == 0x7E);
  CHECK(ue4m3_from_float(320) == 0x7E);  // 0x7A would be exact
  CHECK(ue4m3_from_float(kInfinity) == 0x7E);
  CHECK(ue4m3_from_float(-1) == 0);
  CHECK(ue4m3_from_float(kNaN) == 0);
  CHECK(float_from_ue4m3(0x7E) == 448);
  CHECK(float_from_ue4m3(0x7F) == 0);
}

TEST_CASE("E8M0: powers of two, rounded down") {
  CHECK(e8m0_from_float(1) == 127);
  CHECK(e8m0_from_float(std::nextafter(1.0f, 0.0f)) == 126);
  CHECK(e8m0_from_float(std::nextafter(0x1p20f, 0.0f)) == 146);  // log2f would round up
  CHECK(e8m0_from_float(3.9f) == 128);
  CHECK(e8m0_from_float(0) == 0);
  CHECK(e8m0_from_float(1e-44f) == 0);
  CHECK(e8m0_from_float(std::numeric_limits<float>::max()) == 254);
  CHECK(std::isinf(float_from_e8m0(e8m0_from_float(kInfinity))));
  for (int code = 1; code < 255; ++code) REQUIRE(e8m0_from_float(float_from_e8m0(std::uint8_t(code))) == code);
}

TEST_CASE("E2M1: cells between neighbours, ties by either rule") {
  for (const bool has_negative_zero : {false, true})
    for (const Ties ties : {Ties::even, Ties::zero}) {
      const MinifloatBook book = e2m1_book(ties, has_negative_zero);
      REQUIRE(book.bounds.size() + 1 == book.cell_codes.size());
      const auto code = [&](float x) { return book.cell_codes[std::size_t(code_of(x, book.bounds))]; };
      for (int m = 0; m < 7; ++m) {
        const float low = float(book.values[std::size_t(m)]), high = float(book.values[std::size_t(m) + 1]);
        const float middle = (low + high) / 2;
        const int on_tie = ties == Ties::zero ? m : m + (m & 1);
        CHECK(code(low) == m);
        CHECK(code(middle) == on_tie);
        CHECK(code(std::nextafter(middle, 9.0f)) == m + 1);
        CHECK(code(std::nextafter(middle, 0.0f)) == m);
        const int minus_zero = has_negative_zero ? 8 : 0;
        CHECK(code(-middle) == (on_tie ? 8 + on_tie : minus_zero));
        CHECK(code(-std::nextafter(middle, 9.0f)) == 8 + m + 1);
      }
      CHECK(code(100) == 7);
      CHECK(code(-100) == 15);
    }
}
