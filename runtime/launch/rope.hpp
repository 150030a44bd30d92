// Rotary positions: from what engines state (base, scale, YaRN) to the frequency of each pair, which kernels take
// (args/operations.cuh).
// SPDX-License-Identifier: MIT
#pragma once
#include "args/operations.cuh"
#include "generator/base/result.hpp"

namespace kvjit {

// Pair i of dims / 2 rotates by position * scale * base^(-2 i / dims) radians and is multiplied by `magnitude`.
struct Rope {
  kv::RopePairs pairs = kv::RopePairs::neighbours;
  int first = 0,  // first value of a head that is rotated
      dims = 0;   // values that are rotated: even
  double base = 10000, scale = 1, magnitude = 1;
  // YaRN. Pairs that turn more than beta_fast times within the trained context keep scale 1; pairs that turn less than
  // beta_slow times have `scale`; a ramp lies between. `extrapolation` multiplies the share that is kept; 0: no YaRN.
  double extrapolation = 0, beta_fast = 32, beta_slow = 1;
  int trained_tokens = 0;  // context length of the training
};
// Leaves positions and factors for the caller to set. Fails with bad_input.
Result<kv::RopeArgs> rope_args(const Rope& rope);
// Whether bulk kernels can rotate so (templates/kernels/operations/rope_tile.cuh): neighbours from an even value on, or
// halves of 64 or 128 values from a multiple of that number on.
bool is_turned_by_tiles(const kv::RopeArgs& rope);

}  // namespace kvjit
