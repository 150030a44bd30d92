// Strides from RowPlaces and QueryPlaces: see row_places.hpp.
// SPDX-License-Identifier: MIT
#include "tools/verify/row_places.hpp"

namespace kvjit {

SideGeometry rows_geometry(const SideInfo& side, long long sequences, long long heads, long long tokens,
                           const RowPlaces& places) {
  SideGeometry geometry;
  kv::CacheSide& strides = geometry.strides;
  const long long row_stride = side.row_bytes + (places.by_head ? places.behind : 0);
  const long long outer_stride =
      row_stride * (places.by_head ? tokens : heads) * places.capacity_factor + (places.by_head ? 0 : places.behind);
  strides.codes_head_stride = places.by_head ? outer_stride : row_stride;
  strides.codes_token_stride = places.by_head ? row_stride : outer_stride;
  const long long sequence = outer_stride * (places.by_head ? heads : tokens);
  strides.codes_sequence_stride = places.shares_sequences ? 0 : sequence;
  geometry.total_bytes = static_cast<std::size_t>(places.front + sequence * (places.shares_sequences ? 1 : sequences));
  geometry.codes_bytes = geometry.total_bytes;
  return geometry;
}

kv::Rows placed_rows(DevicePointer data, const QueryShape& shape, const QueryPlaces& places) {
  const long long row = shape.dim + places.gap;
  return {reinterpret_cast<void*>(data), shape.heads * shape.queries * row, places.by_query ? shape.heads * row : row,
          places.by_query ? row : shape.queries * row};
}

}  // namespace kvjit
