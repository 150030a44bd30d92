// Arguments of clock (kernels/auxiliary/clock.cuh).
// SPDX-License-Identifier: MIT
#pragma once
#include "args/types.cuh"

namespace kv {

struct ClockArgs {
  i64* cycles;       // of a multiprocessor, in `nanoseconds`
  i64* nanoseconds;  // of the device's timer, about `duration`
  i64 duration;      // nanoseconds
};

}  // namespace kv
