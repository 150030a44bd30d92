// Small numbers: the 8-bit and 4-bit floats of cache formats, as elements, as scales and as a codebook.
// SPDX-License-Identifier: MIT
#pragma once
#include <cstdint>
#include <vector>

namespace kvjit {

// IEEE binary16 / bfloat16 <-> float, round to nearest even.
std::uint16_t f16_from_float(float x);
float float_from_f16(std::uint16_t h);
std::uint16_t bf16_from_float(float x);
float float_from_bf16(std::uint16_t b);

// OCP 8-bit floats, round to nearest even. E4M3FN saturates at +-448 (infinities too) and has one NaN, 0x7F; E5M2 is
// the upper byte of a half, rounds to infinity above 61440 and keeps infinities and NaN.
std::uint8_t e4m3_from_float(float x);
float float_from_e4m3(std::uint8_t b);
std::uint8_t e5m2_from_float(float x);
float float_from_e5m2(std::uint8_t b);

// ggml's UE4M3 (ggml-impl.h): E4M3 without a sign, half up on the dropped mantissa bit. Its writer takes the exponent
// field 15 for an overflow, so that 248 and above become 0x7E (448), and keeps subnormals below 8 / 512. 0x7F decodes
// to 0.
std::uint8_t ue4m3_from_float(float x);
float float_from_ue4m3(std::uint8_t b);

// A power of two, biased by 127, rounded down; 0 for x <= 0, and 0xFF (which decodes to infinity) for infinity.
std::uint8_t e8m0_from_float(float x);
float float_from_e8m0(std::uint8_t b);

// The codebook of E2M1: values 0 .5 1 1.5 2 3 4 6 by code, bit 3 the sign.
struct MinifloatBook {
  std::vector<double> values;   // by code
  std::vector<double> bounds;   // between cells, ascending, as float32; a value on a bound belongs to the upper cell
  std::vector<int> cell_codes;  // code of each cell
};
enum class Ties {
  even,
  zero
};  // values midway between two entries: to the even mantissa (hardware), towards zero (ggml)
// has_negative_zero: small negative values get code 8, else code 0.
MinifloatBook e2m1_book(Ties ties, bool has_negative_zero);

}  // namespace kvjit
