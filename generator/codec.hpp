// The reference codec: encode and decode any Format on the CPU, straight from the format's data. It is the definition that
// kernels are tested against; it shares no code with them. Norm rules and rotations compute in double; the amax rules follow
// ggml's float32 operations step by step, because there the last bit decides the byte.
// SPDX-License-Identifier: MIT
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "generator/format.hpp"

namespace kvjit {

// IEEE binary16 / bfloat16 <-> float, round to nearest even.
std::uint16_t f16_from_float(float x);
float float_from_f16(std::uint16_t h);
std::uint16_t bf16_from_float(float x);
float float_from_bf16(std::uint16_t b);

// One row: x.size() values (a multiple of format.block and of its rotation's size) -> format.row_bytes(x.size()) bytes, whole
// blocks in element order, fields in file order (layout `rows`).
std::vector<std::uint8_t> encode_row(const Format& format, std::span<const float> x);

// The inverse, exact in float64 arithmetic on the stored numbers. rotated: leave the values in the rotated domain.
std::vector<double> decode_row(const Format& format, std::span<const std::uint8_t> bytes, int n, bool rotated);

}  // namespace kvjit
