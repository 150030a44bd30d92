// Computes the frequencies of rotary pairs: see rope.hpp. The ramp of YaRN (Peng et al. 2023) is that of ggml
// (ggml_rope_yarn_corr_dims, rope_yarn).
// SPDX-License-Identifier: MIT
#include "runtime/launch/rope.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace kvjit {
namespace {

// The index of the rotary pair, as a real number, that makes `rotations` full rotations in the trained context.
double pair_of_rotations(const Rope& rope, double rotations) {
  return rope.dims * std::log(rope.trained_tokens / (rotations * 2 * std::numbers::pi)) / (2 * std::log(rope.base));
}

// The weight of a rotary pair's own frequency against its frequency times `scale`: 1 is the own frequency alone.
double own_weight(const Rope& rope, int pair) {
  if (rope.extrapolation == 0) return 0;
  const double low = std::max(0.0, std::floor(pair_of_rotations(rope, rope.beta_fast))),
               high = std::min(rope.dims - 1.0, std::ceil(pair_of_rotations(rope, rope.beta_slow)));
  return rope.extrapolation * (1 - std::clamp((pair - low) / std::max(0.001, high - low), 0.0, 1.0));
}

}  // namespace

Result<kv::RopeArgs> rope_args(const Rope& rope) {
  const auto refuse = [](std::string message) { return fail(Code::bad_input, std::move(message)); };
  if (rope.dims < 2 || rope.dims % 2 != 0 || rope.dims > 2 * kv::kMostRopePairs)
    return refuse(
        fmt::format("rope.dims {}; even numbers from 2 to {} are possible", rope.dims, 2 * kv::kMostRopePairs));
  if (!(rope.base > 1) || !std::isfinite(rope.base))
    return refuse(fmt::format("rope.base {}; a number above 1 is needed", rope.base));
  if (!(rope.scale > 0) || !std::isfinite(rope.scale))
    return refuse(fmt::format("rope.scale {}; a positive number is needed", rope.scale));
  if (rope.extrapolation != 0 && !(rope.trained_tokens > 0 && rope.beta_fast > 0 && rope.beta_slow > 0))
    return refuse("rope.extrapolation without trained_tokens, beta_fast and beta_slow, which must be positive");
  kv::RopeArgs args{};
  args.first = rope.first, args.dims = rope.dims, args.pairs = rope.pairs;
  args.magnitude = static_cast<float>(rope.magnitude);
  for (int i = 0; i < rope.dims / 2; ++i) {
    const double weight = own_weight(rope, i);
    args.frequencies[i] =
        std::pow(rope.base, -2.0 * i / rope.dims) * (rope.scale * (1 - weight) + weight) / (2 * std::numbers::pi);
  }
  return args;
}

bool is_served_by_bulk(const kv::RopeArgs& rope) {
  if (rope.pairs == kv::RopePairs::neighbours) return rope.first % 2 == 0;
  return (rope.dims == 64 || rope.dims == 128) && rope.first % rope.dims == 0;
}

}  // namespace kvjit
