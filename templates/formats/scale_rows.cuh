// Stored rows whose scales are stored by columns: the scale of group s of n stands at place s % kScaleRows * (n /
// kScaleRows) + s / kScaleRows. Such a row is one block.
// SPDX-License-Identifier: MIT
#pragma once
#include "formats/stored_row.cuh"

namespace kv {

template <class F>
KV_DEVICE int scale_place(int i) {
  constexpr int kGroups = F::kBlock / F::kGroup;
  const int group = group_of<F>(i);
  return F::kScaleAt + (group % F::kScaleRows * (kGroups / F::kScaleRows) + group / F::kScaleRows) * F::Number::kBytes;
}

// In place of load_value() of formats/stored_row.cuh.
template <class F>
requires(F::kScaleRows > 1) KV_DEVICE float load_value(const StoredRow& row, int i, float = 1.f) {
  const u32 scale = load_bytes<F::Number::kBytes>(scales_of<F>(row, i) + scale_place<F>(i));
  return load_level<F>(row, i) * F::Number::decode(scale);
}

}  // namespace kv
