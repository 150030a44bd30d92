// Where an engine's rows may lie: those of a cache of layout rows, and those of queries and outputs.
// SPDX-License-Identifier: MIT
#pragma once
#include "runtime/launch/kv_layout.hpp"

namespace kvjit {

// Of a cache of layout rows. The default is what side_geometry has.
struct RowPlaces {
  bool by_head = false;             // [head][token] instead of [token][head]
  int front = 0, behind = 0;        // bytes, even: ahead of the first row; behind each entry of the second dimension
  int room = 1;                     // the second dimension of a buffer has so many times as many entries as are used
  bool shares_sequences = false;    // all sequences read one and the same
  bool has_values_in_keys = false;  // a row of V is the front of that of K
  bool operator==(const RowPlaces&) const = default;
};
// Strides and bytes of a side by `places`; the bytes count the front.
SideGeometry rows_geometry(const SideFacts& side, long long sequences, long long heads, long long tokens,
                           const RowPlaces& places);

// Of queries or outputs.
struct QueryPlaces {
  bool by_query = false;  // [sequence][query][head] instead of [sequence][head][query]
  int gap = 0;            // elements behind each row
};
struct QueryShape {
  long long sequences = 1, heads = 1, queries = 1, dim = 0;
};
kv::Rows placed_rows(DevicePointer data, const QueryShape& shape, const QueryPlaces& places);

// visit(place, row): the element at which a row begins in memory, for the rows of [sequence][head][query] in order.
template <class Visit>
void for_each_query_row(const QueryShape& shape, const QueryPlaces& places, Visit visit) {
  const kv::Rows rows = placed_rows(0, shape, places);
  std::size_t row = 0;
  for (long long s = 0; s < shape.sequences; ++s)
    for (long long h = 0; h < shape.heads; ++h)
      for (long long q = 0; q < shape.queries; ++q, ++row)
        visit(static_cast<std::size_t>(s * rows.sequence_stride + h * rows.head_stride + q * rows.query_stride), row);
}

}  // namespace kvjit
