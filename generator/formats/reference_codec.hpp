// The reference codec encodes and decodes any Format on the CPU, directly from the format's data. Kernels are tested
// against it, and it shares no code with them. Norm rules and rotations compute in double. The amax rules follow ggml's
// float32 operations step by step, because there the last bit decides a byte.
// SPDX-License-Identifier: MIT
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "generator/base/minifloat.hpp"
#include "generator/formats/format.hpp"

namespace kvjit {

// Encodes one row of x.size() values, which are whole blocks and rotations unless the format pads. The result is
// format.head_bytes(x.size()) bytes of layout rows: whole blocks in the order of the values, with fields in file order.
// tensor_scale is for formats that have one scale for the whole tensor. specs/docs/formats.md ("Numbers that do not
// fit") says what becomes of NaN, infinities and numbers too large for the scale.
std::vector<std::uint8_t> encode_row(const Format& format, std::span<const float> x, float tensor_scale = 1);

// Decodes one row in double arithmetic on the stored numbers: head_dim values. With `rotated` it returns the
// format.stored_dim(head_dim) values in the rotated domain instead.
std::vector<double> decode_row(const Format& format, std::span<const std::uint8_t> bytes, int head_dim, bool rotated,
                               float tensor_scale = 1);

}  // namespace kvjit
