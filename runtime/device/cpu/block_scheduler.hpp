// Runs a grid of blocks on the CPU: one fibre for each lane, one block after the other. Kernels call it through
// templates/device/cpu.hpp. It is stricter than a GPU on purpose:
//
//   - Shared memory starts as NaN patterns and ends in a guard zone.
//   - Asynchronous copies arrive only when they are waited for.
//   - All live lanes of a group must reach a collective at the same source line.
//   - All lanes of a warp must report the same value for every warp-uniform condition, equally often.
//   - A seed shuffles the order of lanes and lets one warp run as far as it gets.
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

// A kernel of another object file: its kv_cpu_bind, and the entry that every lane calls with the same arguments.
struct LaneProgram {
  void (*bind)(const kv::cpu::Host*) = nullptr;
  void (*entry)(const void* args) = nullptr;
};

// Runs a grid to its end. seed: 0 runs lanes in order, any other number in the random order that it seeds. A process
// runs one launch at a time; a second thread waits. Fails with internal if the kernel broke a rule (divergent
// collective, deadlock, overrun of shared memory, misaligned or forgotten copy) and names block and lane. Fails with
// bad_input for a launch that no GPU would take.
Result<void> run_grid(const LaneProgram& program, Grid grid, int threads, std::size_t shared_bytes, const void* args,
                      unsigned seed = 0);

// The same for device code that is compiled into this binary: `body` is the kernel of one lane.
Result<void> run_grid(const std::function<void()>& body, Grid grid, int threads, std::size_t shared_bytes,
                      unsigned seed = 0);

}  // namespace kvjit
