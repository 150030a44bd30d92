// Small floats of cache formats: 16-bit and 8-bit floats as elements and scales, and the 4-bit float E2M1 as a
// codebook. All conversions are bit-exact with the hardware or the project that is named beside them.
// SPDX-License-Identifier: MIT
#pragma once
#include <cstdint>
#include <vector>

namespace kvjit {

// IEEE binary16 and bfloat16, rounded to nearest even.
std::uint16_t f16_from_float(float x);
float float_from_f16(std::uint16_t h);
std::uint16_t bf16_from_float(float x);
float float_from_bf16(std::uint16_t b);

// OCP 8-bit floats, rounded to nearest even. E4M3FN saturates at +-448, also for infinities, and its NaN is 0x7F. E5M2
// is the upper byte of a binary16; it rounds to infinity from 61440 on, and keeps infinities and NaN.
std::uint8_t e4m3_from_float(float x);
float float_from_e4m3(std::uint8_t b);
std::uint8_t e5m2_from_float(float x);
float float_from_e5m2(std::uint8_t b);

// Triton's fp8e4b15: the sign, four bits of exponent with a bias of 15, three of mantissa; no infinity and no NaN.
// Numbers are rounded half up in magnitude, saturate at +-1.75, and keep the sign of 0; NaN becomes 1.75.
std::uint8_t e4m3b15_from_float(float x);
float float_from_e4m3b15(std::uint8_t b);

// ggml's UE4M3 (ggml-impl.h): E4M3 without a sign, rounded half up on the dropped mantissa bit. Its writer takes the
// exponent field 15 for an overflow, so 248 and above become 0x7E (448). Subnormals stay below 8 / 512. 0x7F decodes to
// 0.
std::uint8_t ue4m3_from_float(float x);
float float_from_ue4m3(std::uint8_t b);

// E8M0 is a power of two with a bias of 127. Numbers are rounded down. x <= 0 becomes 0, and infinity becomes 0xFF,
// which decodes to infinity.
std::uint8_t e8m0_from_float(float x);
float float_from_e8m0(std::uint8_t b);

// The codebook of E2M1. Codes 0 .. 7 are 0, 0.5, 1, 1.5, 2, 3, 4 and 6; bit 3 is the sign.
struct MinifloatBook {
  std::vector<double> values;   // the value of each code
  std::vector<double> bounds;   // between cells, ascending, as float32; a value on a bound belongs to the upper cell
  std::vector<int> cell_codes;  // the code of each cell
};
// The entry that a value midway between two entries gets.
enum class Ties {
  even,  // to the even mantissa, as in hardware
  zero,  // towards zero, as in ggml
  lower  // to the lower of two values, as in vLLM's ultraquant
};
// has_negative_zero: small negative values get code 8, as -0 does in hardware; else they get code 0.
MinifloatBook e2m1_book(Ties ties, bool has_negative_zero);

}  // namespace kvjit
