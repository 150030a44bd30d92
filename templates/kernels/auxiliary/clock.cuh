// clock: counts the cycles of a multiprocessor over a time. `kvjit bench` launches it right behind timed calls, and
// computes the peak of the tensor cores from the clock that the device then has.
// SPDX-License-Identifier: MIT
#pragma once
#include "args/clock.cuh"
#include "device/clock.cuh"

namespace kv {

template <class Plan>
KV_DEVICE void clock(const ClockArgs& args) {
  if (thread() != 0) return;
  const i64 began = read_nanoseconds(), first = read_cycles();
  i64 now;
  do now = read_nanoseconds();
  while (now - began < args.duration);
  *args.cycles = read_cycles() - first;
  *args.nanoseconds = now - began;
}

}  // namespace kv
