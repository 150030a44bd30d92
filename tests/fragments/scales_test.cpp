// templates/formats/scales.cuh: the quotient by a reciprocal found once is the correctly rounded one.
// SPDX-License-Identifier: MIT
#include "formats/scales.cuh"

#include <doctest/doctest.h>

#include <cmath>
#include <random>

namespace kvjit {
namespace {

struct Bits {  // stands for a codec that keeps every bit of the quotient
  static kv::u32 code(float v) { return kv::bits_of(v); }
};
struct Nothing {};

kv::u32 quotient(float x, float d) {
  return kv::Quotient::code<Nothing, Bits>(x, d, kv::Quotient::factor<Nothing>(d, 0.f));
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

TEST_CASE("quotients at the ends of the range") {
  for (const float d : {0x1p-149f, 0x1p-126f, 0x1p-61f, 0x1p61f, 3.4e38f})
    for (const float x : {d, -d / 2, d * 0.75f, 0.f}) CHECK(quotient(x, d) == kv::bits_of(x / d));
  for (const float x : {0x1p30f, -0x1p127f, INFINITY}) {  // beyond all codes, whatever is left of it
    const float q = kv::float_of(quotient(x, 0x1p-61f));
    CHECK(std::fabs(q) >= 0x1p80f);
    CHECK(std::signbit(q) == std::signbit(x));
  }
  CHECK(quotient(-0.f, 2.f) == kv::bits_of(-0.f));
  CHECK(quotient(1.f, 0.f) == kv::bits_of(0.f));
  CHECK(quotient(1.f, INFINITY) == kv::bits_of(0.f));
  CHECK(std::isnan(kv::float_of(quotient(INFINITY, INFINITY))));
  CHECK(std::isnan(kv::float_of(quotient(NAN, 2.f))));
}

}  // namespace kvjit
