// RowPlaces and QueryPlaces: the places in memory that an engine may choose for the rows of a cache of layout rows, and
// for the rows of queries and outputs. The harness lays its buffers out by them, so that tests also cover strides that
// no dense array has.
// SPDX-License-Identifier: MIT
#pragma once
#include "runtime/launch/kv_layout.hpp"

namespace kvjit {

// Places of the rows of a cache of layout rows. The default is the dense array of side_geometry.
struct RowPlaces {
  bool by_head = false;             // rows lie as [head][token] instead of [token][head]
  int front = 0;                    // bytes before the first row, even
  int behind = 0;                   // bytes behind each row ([head][token]) or each token ([token][head]), even
  int capacity_factor = 1;          // capacity of the faster dimension (heads or tokens), in multiples of its entries
  bool shares_sequences = false;    // all sequences read the rows of one sequence
  bool has_values_in_keys = false;  // each row of V is the first bytes of the row of K
  bool operator==(const RowPlaces&) const = default;
};
// The strides of a side by `places`, and its size in bytes with places.front.
SideGeometry rows_geometry(const SideInfo& side, long long sequences, long long heads, long long tokens,
                           const RowPlaces& places);

// Places of the rows of queries or outputs.
struct QueryPlaces {
  bool by_query = false;  // rows lie as [sequence][query][head] instead of [sequence][head][query]
  int gap = 0;            // elements behind each row
};
struct QueryShape {
  long long sequences = 1;
  long long heads = 1;    // query heads of a sequence
  long long queries = 1;  // queries of a sequence
  long long dim = 0;      // elements of a row
};
// The argument struct of a kernel for rows of `shape` that lie at `data` by `places`.
kv::Rows placed_rows(DevicePointer data, const QueryShape& shape, const QueryPlaces& places);

// Calls visit(place, row) for the rows of [sequence][head][query] in order. place: the element at which the row begins
// in memory. row: the row's number.
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
