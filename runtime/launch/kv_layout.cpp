// The layout of caches that this library allocates: see kv_layout.hpp.
// SPDX-License-Identifier: MIT
#include "runtime/launch/kv_layout.hpp"

#include <limits>

#include "runtime/base/sizes.hpp"

namespace kvjit {
namespace {

// Granularity of a planar capacity, in tokens. 64 rows of any even size are a multiple of 16 bytes.
constexpr long long kPlanarCapacity = 64;

SideGeometry page_geometry(const ProgramSource& source, const SideInfo& side, long long sequences, long long heads,
                           long long capacity) {
  const auto round_up = [](std::size_t bytes) {
    const std::size_t up = plus(bytes, kVectorAlignment - 1);
    return up == kTooMuch ? kTooMuch : up / kVectorAlignment * kVectorAlignment;
  };
  const long long tokens = source.page_tokens;
  const long long pages = capacity > std::numeric_limits<long long>::max() - tokens ? -1 : ceil_div(capacity, tokens);
  SideGeometry geometry;
  const std::size_t codes =
      round_up(product(1, source.is_planar() ? side.code_row_bytes : side.row_bytes, heads, tokens));
  const std::size_t scales = round_up(product(1, source.is_planar() ? side.scale_row_bytes : 0, heads, tokens));
  const std::size_t page = plus(codes, scales);
  geometry.total_bytes = times(times(page, pages), sequences);
  geometry.codes_bytes = scales > 0 ? codes : geometry.total_bytes;
  if (geometry.total_bytes == kTooMuch) return geometry;
  kv::CacheSide& strides = geometry.strides;
  strides.codes_sequence_stride = strides.scales_sequence_stride = static_cast<long long>(page);
  strides.codes_token_stride = source.is_planar() ? side.code_row_bytes : side.row_bytes * heads;
  strides.codes_head_stride = source.is_planar() ? side.code_row_bytes * tokens : side.row_bytes;
  strides.scales_token_stride = source.is_planar() ? side.scale_row_bytes : 0;
  strides.scales_head_stride = strides.scales_token_stride * tokens;
  return geometry;
}

SideGeometry stored_geometry(const ProgramSource& source, const SideInfo& side, long long sequences, long long heads,
                             long long capacity) {
  SideGeometry geometry;
  kv::CacheSide& strides = geometry.strides;
  if (source.page_tokens > 0) return page_geometry(source, side, sequences, heads, capacity);
  if (!source.is_planar()) {
    geometry.codes_bytes = geometry.total_bytes = product(1, side.row_bytes, heads, capacity, sequences);
    if (geometry.total_bytes == kTooMuch) return geometry;
    strides.codes_head_stride = side.row_bytes;
    strides.codes_token_stride = side.row_bytes * heads;
    strides.codes_sequence_stride = side.row_bytes * heads * capacity;
    return geometry;
  }
  const long long tokens = capacity > std::numeric_limits<long long>::max() - kPlanarCapacity
                               ? -1  // product() turns it into kTooMuch
                               : ceil_div(capacity, kPlanarCapacity) * kPlanarCapacity;
  geometry.codes_bytes = rounded(product(1, side.code_row_bytes, tokens, heads, sequences));
  geometry.total_bytes = plus(geometry.codes_bytes, product(1, side.scale_row_bytes, tokens, heads, sequences));
  if (geometry.total_bytes == kTooMuch) return geometry;
  strides.codes_token_stride = side.code_row_bytes;
  strides.codes_head_stride = side.code_row_bytes * tokens;
  strides.codes_sequence_stride = strides.codes_head_stride * heads;
  strides.scales_token_stride = side.scale_row_bytes;
  strides.scales_head_stride = side.scale_row_bytes * tokens;
  strides.scales_sequence_stride = strides.scales_head_stride * heads;
  return geometry;
}

}  // namespace

SideGeometry side_geometry(const ProgramSource& source, const SideInfo& side, long long sequences, long long heads,
                           long long capacity) {
  SideGeometry geometry = stored_geometry(source, side, sequences, heads, capacity);
  if (side.has_head_scales) {
    kv::CacheSide& strides = geometry.strides;
    strides.scales_sequence_stride = strides.scales_token_stride = 0;
    strides.scales_head_stride = sizeof(float);
  }
  return geometry;
}

kv::CacheSide at(const SideGeometry& geometry, DevicePointer base) {
  kv::CacheSide side = geometry.strides;
  side.codes = reinterpret_cast<kv::u8*>(base);
  if (geometry.total_bytes > geometry.codes_bytes) side.scales = side.codes + geometry.codes_bytes;
  return side;
}

}  // namespace kvjit
