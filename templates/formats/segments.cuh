// Stored rows of segments: ranges of channels of a head with formats of their own. A segment S of the list F::Segments
// has channels S::kFirst and up, in whole blocks of the format S::F. Its codes are S::kCodesAt bytes behind the codes
// of the row, and its scales kScalesAt bytes behind the scales, as in layout planar.
// SPDX-License-Identifier: MIT
#pragma once
#include "device/type_list.cuh"
#include "formats/stored_row.cuh"

namespace kv {

template <class S>
KV_DEVICE StoredRow segment_row(const StoredRow& row) {
  return {row.codes + S::kCodesAt, row.scales + S::kScalesAt};
}

// Value i of the row, in place of load_value() of formats/stored_row.cuh.
template <class F>
requires(F::kHasSegments) KV_DEVICE float load_value(const StoredRow& row, int i, float = 1.f) {
  float value = 0.f;
  for_each(typename F::Segments{}, [&](auto segment) {
    using S = decltype(segment);
    if (i >= S::kFirst && i < S::kFirst + S::F::kStored)
      value = load_value<typename S::F>(segment_row<S>(row), i - S::kFirst);
  });
  return value;
}

}  // namespace kv
