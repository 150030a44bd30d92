// tools/verify/row_places.cpp: strides of rows, compared with strides computed by hand.
// SPDX-License-Identifier: MIT
#include "tools/verify/row_places.hpp"

#include <doctest/doctest.h>

#include <set>

namespace kvjit {
namespace {

constexpr long long kRow = 18, kSequences = 2, kHeads = 3, kTokens = 5;

SideGeometry placed(const RowPlaces& places) {
  SideInfo side;
  side.row_bytes = kRow;
  return rows_geometry(side, kSequences, kHeads, kTokens, places);
}

TEST_CASE("rows of a cache by token, by head, in views, shared") {
  const SideGeometry by_token = placed({false, 0, 0, 1, false, false});
  CHECK(by_token.strides.codes_head_stride == kRow);
  CHECK(by_token.strides.codes_token_stride == kRow * kHeads);
  CHECK(by_token.strides.codes_sequence_stride == kRow * kHeads * kTokens);
  CHECK(by_token.total_bytes == kRow * kHeads * kTokens * kSequences);
  CHECK(by_token.codes_bytes == by_token.total_bytes);

  const SideGeometry gaps = placed({false, 6, 4, 2, false, false});
  CHECK(gaps.strides.codes_token_stride == kRow * kHeads * 2 + 4);
  CHECK(gaps.total_bytes == 6 + (kRow * kHeads * 2 + 4) * kTokens * kSequences);

  const SideGeometry by_head = placed({true, 0, 4, 2, true, false});
  CHECK(by_head.strides.codes_token_stride == kRow + 4);
  CHECK(by_head.strides.codes_head_stride == (kRow + 4) * kTokens * 2);
  CHECK(by_head.strides.codes_sequence_stride == 0);
  CHECK(by_head.total_bytes == (kRow + 4) * kTokens * 2 * kHeads);
}

TEST_CASE("rows of queries, each at a place of its own") {
  const QueryShape shape{2, 3, 4, 8};
  for (const QueryPlaces& places : {QueryPlaces{}, QueryPlaces{true, 0}, QueryPlaces{false, 3}, QueryPlaces{true, 3}}) {
    const kv::Rows rows = placed_rows(0, shape, places);
    CHECK((places.by_query ? rows.head_stride : rows.query_stride) == 8 + places.gap);
    std::set<std::size_t> seen;
    std::size_t count = 0;
    for_each_query_row(shape, places, [&](std::size_t place, std::size_t row) {
      CHECK(row == count++);
      CHECK(place % std::size_t(8 + places.gap) == 0);
      CHECK(place < std::size_t(2 * 3 * 4 * (8 + places.gap)));
      seen.insert(place);
    });
    CHECK(seen.size() == 2 * 3 * 4);
  }
  std::size_t second_head = 0;
  for_each_query_row(shape, {true, 3}, [&](std::size_t place, std::size_t row) {
    if (row == 4) second_head = place;  // query 0 of head 1
  });
  CHECK(second_head == 11);
}

}  // namespace
}  // namespace kvjit
