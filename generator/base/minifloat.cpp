// Conversions of small floats (minifloat.hpp). Rounding is done in integers, or by exact scalings by powers of two.
// SPDX-License-Identifier: MIT
#include "generator/base/minifloat.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace kvjit {
namespace {

// Rounds a magnitude to a float with `mantissa` bits and a least exponent of `least`; smaller numbers are subnormal.
// Rounding is to nearest even. The result is the integer that the exponent and mantissa fields form. It has no upper
// limit.
int round_to_fields(float magnitude, int mantissa, int least) {
  if (magnitude == 0) return 0;
  const int exponent = std::max(std::ilogb(magnitude), least);
  // nearbyint rounds half to even in the default environment. A mantissa that rounds up to the next power of two
  // carries into the exponent field.
  const int units = int(std::nearbyint(std::ldexp(magnitude, mantissa - exponent)));
  return ((exponent - least) << mantissa) + units;
}

// The inverse of round_to_fields.
float float_of_fields(int fields, int mantissa, int least) {
  const int exponent = fields >> mantissa, fraction = fields & ((1 << mantissa) - 1);
  return std::ldexp(float(exponent ? fraction + (1 << mantissa) : fraction),
                    std::max(exponent, 1) - 1 + least - mantissa);
}

}  // namespace

std::uint16_t f16_from_float(float x) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
  const std::uint16_t sign = std::uint16_t(bits >> 16 & 0x8000);
  const float magnitude = std::fabs(x);
  if (std::isnan(x)) return 0x7FFF;  // whatever its sign, as hardware converts
  if (magnitude >= 65520.0f) return sign | 0x7C00;  // halfway between the largest half and the next power of two
  if (magnitude < 0x1p-14f)                         // subnormal: adding 0.5 rounds at 2^-24, to nearest even
    return sign | std::uint16_t(std::bit_cast<std::uint32_t>(magnitude + 0.5f) - std::bit_cast<std::uint32_t>(0.5f));
  const std::uint32_t rebased = (bits & 0x7FFFFFFF) - (112u << 23);
  return sign | std::uint16_t((rebased + 0xFFF + (rebased >> 13 & 1)) >> 13);
}

float float_from_f16(std::uint16_t h) {
  const std::uint32_t exponent = h >> 10 & 31, mantissa = h & 1023;
  float magnitude =
      exponent ? std::bit_cast<float>((exponent + 112) << 23 | mantissa << 13) : float(mantissa) * 0x1p-24f;
  if (exponent == 31) magnitude = mantissa ? NAN : INFINITY;
  return h & 0x8000 ? -magnitude : magnitude;
}

std::uint16_t bf16_from_float(float x) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
  if (std::isnan(x)) return std::uint16_t(bits >> 16 | 0x40);
  return std::uint16_t((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

float float_from_bf16(std::uint16_t b) { return std::bit_cast<float>(std::uint32_t(b) << 16); }

std::uint8_t e4m3_from_float(float x) {
  const std::uint8_t sign = std::signbit(x) ? 0x80 : 0;
  if (std::isnan(x)) return 0x7F;  // whatever its sign, as hardware converts
  if (std::fabs(x) >= 448) return sign | 0x7E;
  return std::uint8_t(sign | std::min(round_to_fields(std::fabs(x), 3, -6), 0x7E));
}

float float_from_e4m3(std::uint8_t b) {
  const float magnitude =
      (b & 0x7F) == 0x7F ? std::numeric_limits<float>::quiet_NaN() : float_of_fields(b & 0x7F, 3, -6);
  return b & 0x80 ? -magnitude : magnitude;
}

std::uint8_t e5m2_from_float(float x) {
  const std::uint8_t sign = std::signbit(x) ? 0x80 : 0;
  if (std::isnan(x)) return sign | 0x7E;
  if (std::fabs(x) >= 61440) return sign | 0x7C;  // halfway between the largest, 57344, and the next power of two
  return std::uint8_t(sign | round_to_fields(std::fabs(x), 2, -14));
}

float float_from_e5m2(std::uint8_t b) { return float_from_f16(std::uint16_t(b << 8)); }

std::uint8_t e4m3b15_from_float(float x) {
  if (std::isnan(x)) return 0x7E;
  const float size = std::min(std::fabs(x), 1.75f);
  // In steps of the lowest bit of the mantissa: those of numbers below 2^-14 are 2^-17.
  const int exponent = std::max(size > 0 ? std::ilogb(size) : -14, -14);
  const auto steps = unsigned(std::floor(std::ldexp(double(size), 3 - exponent) + 0.5));
  return std::uint8_t((std::signbit(x) ? 0x80 : 0) | (steps + unsigned(exponent + 14) * 8));
}

// A binary16 has the same bias and one bit more of exponent.
float float_from_e4m3b15(std::uint8_t b) { return float_from_f16(std::uint16_t((b & 0x80) << 8 | (b & 0x7F) << 7)); }

std::uint8_t ue4m3_from_float(float x) {
  if (!(x > 0)) return 0;
  const int exponent = std::isinf(x) ? 8 : std::ilogb(x);
  if (exponent >= 8) return 0x7E;
  if (exponent < -6) return std::uint8_t(std::min(int(x * 512 + 0.5f), 7));  // no carry into the normal numbers
  const int code = ((exponent + 6) << 3) + int(std::ldexp(x, 3 - exponent) + 0.5f);
  return std::uint8_t(code >= 0x78 ? 0x7E : code);
}

float float_from_ue4m3(std::uint8_t b) { return (b & 0x7F) == 0x7F ? 0 : float_of_fields(b & 0x7F, 3, -6); }

std::uint8_t e8m0_from_float(float x) {
  if (!(x > 0)) return 0;
  return std::isinf(x) ? 0xFF : std::uint8_t(std::clamp(std::ilogb(x) + 127, 0, 254));
}

float float_from_e8m0(std::uint8_t b) { return std::ldexp(1.0f, int(b) - 127); }

MinifloatBook e2m1_book(Ties ties, bool has_negative_zero) {
  constexpr double kMagnitudes[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  MinifloatBook book;
  for (int code = 0; code < 16; ++code) book.values.push_back(code & 8 ? -kMagnitudes[code & 7] : kMagnitudes[code]);
  for (int m = 7; m > 0; --m) book.cell_codes.push_back(8 + m);
  if (has_negative_zero) book.cell_codes.push_back(8);
  for (int m = 0; m < 8; ++m) book.cell_codes.push_back(m);
  // Where a tie belongs to the lower cell, the bound moves up by one float.
  const auto above = [](double bound) { return double(std::nextafter(float(bound), 1e9f)); };
  for (int m = 7; m > 0; --m) {  // between entries -m and -(m - 1); the upper cell is towards zero
    const double middle = -(kMagnitudes[m] + kMagnitudes[m - 1]) / 2;
    const bool is_upper = ties == Ties::zero || (ties == Ties::even && m % 2 == 1);
    book.bounds.push_back(is_upper ? middle : above(middle));
  }
  if (has_negative_zero) book.bounds.push_back(0);
  for (int m = 1; m < 8; ++m) {
    const double middle = (kMagnitudes[m] + kMagnitudes[m - 1]) / 2;
    const bool is_upper = ties == Ties::even && m % 2 == 0;
    book.bounds.push_back(is_upper ? middle : above(middle));
  }
  return book;
}

}  // namespace kvjit
