// Writes values that are out of range to the record of a checked call (args/checks.cuh).
// SPDX-License-Identifier: MIT
#pragma once
#include "args/checks.cuh"
#include "device/simt.cuh"

namespace kv {

// Counts a value that is out of least .. most. The thread that counts first also describes it in the record.
KV_DEVICE void check_value(CheckRecord* record, CheckedArray array, i64 index, i64 value, i64 least, i64 most) {
  if (value >= least && value <= most) return;
  if (count_arrival(&record->count) > 0) return;
  record->array = array;
  record->index = index, record->value = value, record->least = least, record->most = most;
}

}  // namespace kv
