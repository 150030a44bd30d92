// NumPy .npy files of versions 1 and 2: little-endian, C order, f16, f32, f64 and i8. The error for any other file
// names its type, order or version.
// SPDX-License-Identifier: MIT
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "generator/base/result.hpp"

namespace kvjit {

enum class NpyType { f16, f32, f64, i8 };
const char* to_string(NpyType type);

struct Npy {
  NpyType type = NpyType::f32;
  std::vector<long long> shape;
  std::vector<std::uint8_t> bytes;  // the elements, as stored

  long long count() const;            // elements
  std::vector<float> floats() const;  // the elements; f64 is rounded to nearest
  std::string shape_text() const;     // "[2, 1024, 128]"
};

// Fails with Code::bad_input if magic, version, type, order or shape is wrong, or the length is not that of the shape.
// `file` is the name for messages.
Result<Npy> parse_npy(std::vector<std::uint8_t> file_bytes, const std::string& file);
Result<Npy> read_npy(const std::string& file);

std::vector<std::uint8_t> npy_bytes(NpyType type, const std::vector<long long>& shape,
                                    std::span<const std::uint8_t> elements);
Result<void> write_npy(const std::string& file, const std::vector<long long>& shape, std::span<const float> values);

}  // namespace kvjit
