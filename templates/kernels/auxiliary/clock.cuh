// clock: counts the cycles of a multiprocessor over a time. Launched right behind other kernels, it gives the clock
// that they ran at, because a board changes its clock within milliseconds. `kvjit bench` computes the peak of the
// tensor cores from it.
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
