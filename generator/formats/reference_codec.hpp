// The reference codec: encode and decode any Format on the CPU, straight from the format's data. It is the definition
// that kernels are tested against; it shares no code with them. Norm rules and rotations compute in double; the amax
// rules follow ggml's float32 operations step by step, because there the last bit decides the byte.
// SPDX-License-Identifier: MIT
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "generator/base/minifloat.hpp"
#include "generator/formats/format.hpp"

namespace kvjit {

// One row: x.size() values (whole blocks and rotations, unless the format pads) -> format.row_bytes(stored) bytes,
// whole blocks in element order, fields in file order (layout `rows`). tensor_scale: of formats whose one scale belongs
// to the whole tensor. NaN, infinities and numbers too large for the scale: specs/README.md, "Numbers that do not fit".
std::vector<std::uint8_t> encode_row(const Format& format, std::span<const float> x, float tensor_scale = 1);

// The inverse, exact in float64 arithmetic on the stored numbers: head_dim values. rotated: the stored values in the
// rotated domain (format.stored_dim(head_dim) of them).
std::vector<double> decode_row(const Format& format, std::span<const std::uint8_t> bytes, int head_dim, bool rotated,
                               float tensor_scale = 1);

}  // namespace kvjit
