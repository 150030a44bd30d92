// templates/formats/scales.cuh: division by a scale, done with a reciprocal computed once, must be correctly rounded.
// SPDX-License-Identifier: MIT
#include "formats/scales.cuh"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <random>

#include "formats/codes.cuh"

namespace kvjit {
namespace {

struct Bits {  // a codec that keeps every bit of the quotient
  static constexpr bool kIsWide = false;
  static kv::u32 code(float v) { return kv::bits_of(v); }
};
template <class Element>
struct Plain {
  using Number = Element;
};
struct Nothing {};

template <class Codes = Bits>
kv::u32 quotient(float x, float d) {
  return kv::Quotient::code<Nothing, Codes>(x, d, kv::Quotient::factor<Nothing>(d, 0.f));
}

// Calls visit(x, d) with numbers of all exponents, subnormal ones included, of either sign.
template <class Visit>
void for_each_exponent(int mantissas, const Visit& visit) {
  std::mt19937 random(17);
  const auto number = [&](unsigned exponent) {
    const unsigned shape = random() & 7, bits = random() & 0x7fffffu;  // mantissas with few bits or with many
    return kv::float_of(exponent << 23 |
                        (shape == 0   ? bits & 0x700000u
                         : shape == 1 ? bits | 0x7ffff0u
                                      : bits) |
                        (random() & 0x80000000u));
  };
  for (unsigned divisor = 0; divisor < 255; ++divisor)
    for (unsigned dividend = 0; dividend < 255; ++dividend)
      for (int i = 0; i < mantissas; ++i) visit(number(dividend), number(divisor));
}

// The code of x / d in a number type must be that of a true division, for all exponents of x and d.
template <class Number>
void check_codes(const char* name) {
  int wrong = 0;
  for_each_exponent(20, [&](float x, float d) {
    wrong += quotient<kv::PlainCodes<Plain<Number>>>(x, d) != Number::encode(d == 0.f ? 0.f : x / d);
  });
  CHECK_MESSAGE(wrong == 0, name);
}

}  // namespace

TEST_CASE("quotients are those of a division") {
  std::mt19937 random(17);
  const auto mantissa = [&] { return std::ldexp(float(random() >> 8 | 1u << 23), -23); };
  int wrong = 0;
  for (int i = 0; i < 5'000'000; ++i) {
    const int exponent = int(random() % 121) - 60, below = int(random() % 36) - 28;
    const float d = (random() & 1 ? -1.f : 1.f) * std::ldexp(mantissa(), exponent);
    const float x = (random() & 1 ? -1.f : 1.f) * std::ldexp(mantissa(), exponent + below);
    wrong += quotient(x, d) != kv::bits_of(x / d);
  }
  CHECK(wrong == 0);
}

TEST_CASE("quotients of all exponents are those of a division, but for the last bits of the smallest and the largest") {
  constexpr float kLargest = std::numeric_limits<float>::max();
  int wrong = 0, far = 0;
  for_each_exponent(20, [&](float x, float d) {
    if (d == 0.f) return;
    const float exact = x / d, q = kv::float_of(quotient(x, d));
    if (std::fabs(exact) == kLargest)
      far += !(std::fabs(q) >= kLargest && std::signbit(q) == std::signbit(exact));
    else if (std::fabs(exact) >= 0x1p-42f || std::fabs(d) < 0x1p-60f)
      wrong += kv::bits_of(q) != kv::bits_of(exact);
    else
      far += !(std::fabs(double(q) - exact) <= 0x1p-60);
  });
  CHECK(wrong == 0);
  CHECK(far == 0);
}

TEST_CASE("codes of quotients are those of a division") {
  check_codes<kv::F32>("f32");
  check_codes<kv::Bf16>("bf16");
  check_codes<kv::F16>("f16");
  check_codes<kv::E4m3>("e4m3");
  check_codes<kv::E5m2>("e5m2");
}

TEST_CASE("quotients at the ends of the range") {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const float d : {0x1p-149f, 0x1p-126f, 0x1p-61f, 0x1p61f, 3.4e38f})
    for (const float x : {d, -d / 2, d * 0.75f, 0.f}) CHECK(quotient(x, d) == kv::bits_of(x / d));
  for (const float x : {0x1p30f, 0x1p66f, -0x1p127f, kInfinity})
    CHECK(quotient(x, 0x1p-61f) == kv::bits_of(x / 0x1p-61f));
  CHECK(quotient(-0.f, 2.f) == kv::bits_of(-0.f));
  CHECK(quotient(1.f, 0.f) == kv::bits_of(0.f));
  CHECK(quotient(1.f, kInfinity) == kv::bits_of(0.f));
  CHECK(std::isnan(kv::float_of(quotient(kInfinity, kInfinity))));
  CHECK(std::isnan(kv::float_of(quotient(NAN, 2.f))));
}

}  // namespace kvjit
