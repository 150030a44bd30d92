// Stored rows whose scales have a zero point: the stored float32 of a group has in its low bits (F::kZeroMask) the code
// that stands for 0, and its other bits are the scale d. A code q stands for (q - zero point) * d * F::kGain.
// SPDX-License-Identifier: MIT
#pragma once
#include "formats/stored_row.cuh"

namespace kv {

// Value i in the domain of the stored row, in place of that of formats/stored_row.cuh.
template <class F>
requires(F::kZeroMask != 0) KV_DEVICE float load_value(const StoredRow& row, int i, float = 1.f) {
  const u32 word = load_bytes<4>(scales_of<F>(row, i) + F::kScaleAt + group_of<F>(i) * 4);
  return (load_level<F>(row, i) - float(word & F::kZeroMask)) * (float_of(word & ~F::kZeroMask) * F::kGain);
}

}  // namespace kv
