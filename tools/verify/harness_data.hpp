// Conversions between host arrays of floats and bytes in a device's memory, for the harness (harness.hpp) and the
// benchmarks. packed and unpacked convert to and from an element type; uploaded and repeat fill buffers.
// SPDX-License-Identifier: MIT
#pragma once
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "generator/formats/reference_codec.hpp"
#include "runtime/device/backend.hpp"
#include "runtime/launch/program.hpp"

namespace kvjit::harness {

// The address as a pointer, for the kernels' argument structs.
inline void* device_data(DevicePointer pointer) { return reinterpret_cast<void*>(pointer); }

inline std::size_t element_bytes(Element type) { return type == Element::f32 ? 4 : 2; }

inline kv::RowType row_type(Element type) {
  return type == Element::f32 ? kv::RowType::f32 : type == Element::f16 ? kv::RowType::f16 : kv::RowType::bf16;
}

// x as elements of `type`, rounded to nearest.
inline std::vector<std::uint8_t> packed(Element type, std::span<const float> x) {
  std::vector<std::uint8_t> bytes(x.size() * element_bytes(type));
  if (type == Element::f32) {
    std::memcpy(bytes.data(), x.data(), x.size_bytes());
    return bytes;
  }
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::uint16_t half = type == Element::f16 ? f16_from_float(x[i]) : bf16_from_float(x[i]);
    std::memcpy(&bytes[2 * i], &half, 2);
  }
  return bytes;
}

// The inverse of packed.
inline std::vector<float> unpacked(Element type, std::span<const std::uint8_t> bytes) {
  std::vector<float> x(bytes.size() / element_bytes(type));
  for (std::size_t i = 0; i < x.size(); ++i) {
    std::uint16_t half = 0;
    if (type == Element::f32)
      std::memcpy(&x[i], &bytes[4 * i], 4);
    else
      std::memcpy(&half, &bytes[2 * i], 2), x[i] = type == Element::f16 ? float_from_f16(half) : float_from_bf16(half);
  }
  return x;
}

inline Result<Buffer> uploaded(const std::shared_ptr<Backend>& backend, std::span<const std::uint8_t> bytes) {
  KV_TRY(buffer, Buffer::make(backend, bytes.size()));
  KV_CHECK(backend->copy_to_device(buffer.pointer(), bytes.data(), bytes.size()));
  return std::move(buffer);
}

// Fills `bytes` bytes at `to` with repetitions of the first `filled` bytes, which must be written already. Each copy
// doubles the bytes written, so few copies suffice.
inline Result<void> repeat(Backend& backend, DevicePointer to, std::size_t filled, std::size_t bytes) {
  for (std::size_t step; filled < bytes; filled += step) {
    step = std::min(filled, bytes - filled);
    KV_CHECK(backend.copy_on_device(to + filled, to, step, nullptr));
  }
  return {};
}

inline Result<void> check_count(const char* what, std::size_t have, std::size_t need) {
  if (have == need) return {};
  return fail(Code::internal, fmt::format("{} has {} values where the shape gives {}", what, have, need));
}

}  // namespace kvjit::harness
