// Runs a grid of blocks on the CPU, one fibre a lane, one block after the other. It is stricter than a GPU on
// purpose: shared memory starts as NaN patterns and ends in a guard zone, asynchronous copies land only when
// they are waited for, a collective wants all live lanes of its group at one source line, what a warp agrees on
// is said by each of its lanes as often, and a seed shuffles the order in which lanes run, one warp as far as it
// gets. What a kernel sees of it is templates/device/cpu.hpp.
// SPDX-License-Identifier: MIT
#pragma once
#include <cstddef>
#include <functional>

#include "generator/base/result.hpp"
#include "runtime/device/backend.hpp"

namespace kv::cpu {
struct Host;
}

namespace kvjit {

// A kernel of another object file: its kv_cpu_bind, and the entry that every lane calls with the same args.
struct LaneProgram {
  void (*bind)(const kv::cpu::Host*) = nullptr;
  void (*entry)(const void* args) = nullptr;
};

// seed 0: lanes run in order; else in a random order that the seed fixes. One launch at a time in the whole
// process: a second thread waits. Fails with internal (the kernel broke a rule: divergent collective,
// deadlock, overrun of shared memory, misaligned or forgotten copy; says which block and lane) or bad_input
// (a launch that no GPU would take).
Result<void> run_grid(const LaneProgram& program, Grid grid, int threads, std::size_t shared_bytes, const void* args,
                      unsigned seed = 0);

// The same for device code compiled into this very binary: body is the kernel of one lane.
Result<void> run_grid(const std::function<void()>& body, Grid grid, int threads, std::size_t shared_bytes,
                      unsigned seed = 0);

}  // namespace kvjit
