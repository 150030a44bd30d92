// The reference codec (see codec.hpp). Plain loops over the format's data, nothing fast.
// SPDX-License-Identifier: MIT
#include "generator/codec.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include "generator/codebook.hpp"

namespace kvjit {
namespace {

// Below this norm a block is taken for zero (the published quantisers' own limit).
constexpr double kTinyNorm = 1e-10;

void put_code(const Format& f, std::uint8_t* codes, int i, unsigned code) {
  if (f.twos_complement) code ^= 1u << (f.bits - 1);
  for (int bit = 0, at = f.bit_of(i); bit < f.bits; ++bit, ++at)
    codes[at / 8] |= std::uint8_t((code >> bit & 1) << at % 8);
}

unsigned get_code(const Format& f, const std::uint8_t* codes, int i) {
  unsigned code = 0;
  for (int bit = 0, at = f.bit_of(i); bit < f.bits; ++bit, ++at) code |= unsigned(codes[at / 8] >> at % 8 & 1) << bit;
  return f.twos_complement ? code ^ 1u << (f.bits - 1) : code;
}

void put_half(std::uint8_t* at, std::uint16_t half) {
  at[0] = std::uint8_t(half);
  at[1] = std::uint8_t(half >> 8);
}

// f16 of a double, rounded once: through float, but to odd, so that the second rounding sees every dropped
// bit.
std::uint16_t f16_from_double(double x) {
  float nearest = float(x);
  if (nearest != x && std::isfinite(nearest) && !(std::bit_cast<std::uint32_t>(nearest) & 1))
    nearest = std::nextafter(nearest, x > nearest ? INFINITY : -INFINITY);
  return f16_from_float(nearest);
}

// Codes and scale of one block by the norm rules; y holds the rotated values.
std::uint16_t encode_norm(const Format& f, const double* y, std::vector<unsigned>& codes) {
  double squares = 0, code_squares = 0;
  for (int i = 0; i < f.block; ++i) squares += y[i] * y[i];
  const double norm = std::sqrt(squares), inverse = norm > kTinyNorm ? 1 / norm : 0;
  for (int i = 0; i < f.block; ++i) {
    codes[i] = unsigned(code_of(y[i] * inverse, f.bounds));
    code_squares += f.values[codes[i]] * f.values[codes[i]];
  }
  const double code_norm = std::sqrt(code_squares);
  const bool is_corrected = f.scale == ScaleRule::corrected_norm && code_norm > kTinyNorm;
  return f16_from_double(is_corrected ? norm / code_norm : norm);
}

// The same by the amax rules, in ggml's float32 operations and their order (ggml-quants.c,
// quantize_row_q4_0_ref, _q8_0_ref).
std::uint16_t encode_amax(const Format& f, const float* y, std::vector<unsigned>& codes) {
  float largest = 0, signed_largest = 0;
  for (int i = 0; i < f.block; ++i)
    if (largest < std::fabs(y[i])) largest = std::fabs(y[i]), signed_largest = y[i];
  const float d = (f.scale == ScaleRule::signed_max ? signed_largest : largest) / float(f.divisor);
  const float inverse = d != 0 ? 1.0f / d : 0.0f;
  const int low_code = f.rounding == Rounding::half_away ? std::max(0, 2 * f.offset - f.max_code) : 0;
  for (int i = 0; i < f.block; ++i) {
    const float v = y[i] * inverse;
    if (f.kind == CodeKind::table) {
      codes[i] = unsigned(code_of(v, f.bounds));
      continue;
    }
    const float code =
        f.rounding == Rounding::half_up ? std::trunc(v + (float(f.offset) + 0.5f)) : std::round(v) + float(f.offset);
    codes[i] = !(code > float(low_code)) ? unsigned(low_code) : unsigned(std::min(code, float(f.max_code)));
  }
  return f16_from_float(d);
}

}  // namespace

std::uint16_t f16_from_float(float x) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
  const std::uint16_t sign = std::uint16_t(bits >> 16 & 0x8000);
  const float magnitude = std::fabs(x);
  if (std::isnan(x)) return sign | 0x7E00;
  if (magnitude >= 65520.0f) return sign | 0x7C00;  // halfway between the largest half and the next power of two
  if (magnitude < 0x1p-14f)                         // subnormal: the float adder rounds at 2^-24
    return sign | std::uint16_t(std::bit_cast<std::uint32_t>(magnitude + 0.5f) - std::bit_cast<std::uint32_t>(0.5f));
  const std::uint32_t rebased = (bits & 0x7FFFFFFF) - (112u << 23);
  return sign | std::uint16_t((rebased + 0xFFF + (rebased >> 13 & 1)) >> 13);
}

float float_from_f16(std::uint16_t h) {
  const int exponent = h >> 10 & 31, mantissa = h & 1023;
  float magnitude = std::ldexp(float(exponent ? 1024 + mantissa : mantissa), std::max(exponent, 1) - 25);
  if (exponent == 31) magnitude = mantissa ? NAN : INFINITY;
  return h & 0x8000 ? -magnitude : magnitude;
}

std::uint16_t bf16_from_float(float x) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
  if (std::isnan(x)) return std::uint16_t(bits >> 16 | 0x40);
  return std::uint16_t((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

float float_from_bf16(std::uint16_t b) { return std::bit_cast<float>(std::uint32_t(b) << 16); }

std::vector<std::uint8_t> encode_row(const Format& f, std::span<const float> x) {
  std::vector<double> y(x.begin(), x.end());
  rotate_forward(f.rotation, y.data(), int(y.size()));
  const std::vector<float> rounded(y.begin(), y.end());
  std::vector<std::uint8_t> bytes(std::size_t(f.row_bytes((long long)x.size())));
  std::vector<unsigned> codes(std::size_t(f.block));
  std::uint8_t* out = bytes.data();
  for (std::size_t first = 0; first < x.size(); first += std::size_t(f.block), out += f.block_bytes) {
    const bool is_norm = f.scale == ScaleRule::raw_norm || f.scale == ScaleRule::corrected_norm;
    if (is_norm)
      put_half(out + f.scale_at, encode_norm(f, y.data() + first, codes));
    else if (f.has_scale())
      put_half(out + f.scale_at, encode_amax(f, rounded.data() + first, codes));
    else
      for (int i = 0; i < f.block; ++i)
        codes[i] = f.element == Element::f16 ? f16_from_double(y[first + i]) : bf16_from_float(rounded[first + i]);
    for (int i = 0; i < f.block; ++i) put_code(f, out + f.codes_at, i, codes[i]);
  }
  return bytes;
}

std::vector<double> decode_row(const Format& f, std::span<const std::uint8_t> bytes, int n, bool rotated) {
  std::vector<double> values;
  const std::uint8_t* in = bytes.data();
  for (int first = 0; first < n; first += f.block, in += f.block_bytes) {
    const double d = f.has_scale() ? float_from_f16(std::uint16_t(in[f.scale_at] | in[f.scale_at + 1] << 8)) : 1;
    for (int i = 0; i < f.block; ++i) {
      const unsigned code = get_code(f, in + f.codes_at, i);
      if (f.kind == CodeKind::table)
        values.push_back(d * f.values[code]);
      else if (f.kind == CodeKind::uniform)
        values.push_back(d * (int(code) - f.offset));
      else
        values.push_back(f.element == Element::f16 ? float_from_f16(std::uint16_t(code))
                                                   : float_from_bf16(std::uint16_t(code)));
    }
  }
  if (!rotated) rotate_inverse(f.rotation, values.data(), n);
  return values;
}

}  // namespace kvjit
