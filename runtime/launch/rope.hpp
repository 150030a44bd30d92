// Rotary positions as engines state them, and as kernels want them (args/operations.cuh).
// SPDX-License-Identifier: MIT
#pragma once
#include "args/operations.cuh"
#include "generator/base/result.hpp"

namespace kvjit {

// Pair i of dims / 2 turns by position * scale * base^(-2 i / dims) radians.
struct Rope {
  kv::RopePairs pairs = kv::RopePairs::neighbours;
  int first = 0, dims = 0;
  double base = 10000, scale = 1, magnitude = 1;
  // YaRN: pairs that turn more than beta_fast times within the context that the model was trained for keep the scale 1,
  // those below beta_slow have `scale`, and there is a ramp between; all of it times `extrapolation`. 0: none.
  double extrapolation = 0, beta_fast = 32, beta_slow = 1;
  int trained_tokens = 0;
};
// positions and factors are left for the caller to set. Fails with bad_input.
Result<kv::RopeArgs> rope_args(const Rope& rope);
// Whether tiles can be turned so (templates/kernels/operations/rope_tile.cuh): neighbours from an even value on; halves
// of 64 or 128 values, from a multiple of their number on.
bool is_turned_by_tiles(const kv::RopeArgs& rope);

}  // namespace kvjit
