// Rotary positions (RoPE): computes the frequency of each rotary pair, which kernels take (args/operations.cuh), from
// the parameters of engines (base, scale, YaRN). A rotary pair is two values of a head that rotate together.
// SPDX-License-Identifier: MIT
#pragma once
#include "args/operations.cuh"
#include "generator/base/result.hpp"

namespace kvjit {

// Rotary pair i of dims / 2 rotates by position * scale * base^(-2 i / dims) radians and is multiplied by `magnitude`.
struct Rope {
  kv::RopePairs pairs = kv::RopePairs::neighbours;
  int first = 0,  // first value of a head that is rotated
      dims = 0;   // values that are rotated: even
  double base = 10000, scale = 1, magnitude = 1;
  // YaRN. Pairs that make more than beta_fast rotations within the trained context have scale 1. Pairs that make fewer
  // than beta_slow rotations have `scale`. A ramp lies between. `extrapolation` multiplies the weight of scale 1; 0: no
  // YaRN.
  double extrapolation = 0, beta_fast = 32, beta_slow = 1;
  int trained_tokens = 0;  // context length of the training
};
// Sets all members but positions and factors, which the caller sets. Fails with bad_input.
Result<kv::RopeArgs> rope_args(const Rope& rope);
// Whether bulk kernels serve this rotation (templates/kernels/operations/rope_tile.cuh): neighbours from an even value
// on, or halves of dims = 64 or 128 values, where `first` is a multiple of dims.
bool is_served_by_bulk(const kv::RopeArgs& rope);

}  // namespace kvjit
