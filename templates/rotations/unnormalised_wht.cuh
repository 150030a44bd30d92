// The signed Walsh-Hadamard transform without its norm, forward: y = S2 . H . S1 . x. Encoders of formats whose codes
// are those of such y name it; kernels that read the format have the norm in its scales.
// SPDX-License-Identifier: MIT
#pragma once
#include "rotations/wht.cuh"

namespace kv {

template <class Signs>
struct WithoutNorm : Signs {
  static constexpr float kNorm = 1.f;
};

template <class Signs>
using UnnormalisedWht = Wht<WithoutNorm<Signs>>;

}  // namespace kv
