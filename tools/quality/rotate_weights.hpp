// Rotating the weights of a projection once, so that keys, values or queries come out rotated.
// SPDX-License-Identifier: MIT
#pragma once
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "generator/base/result.hpp"
#include "generator/formats/rotation.hpp"
#include "tools/io/safetensors.hpp"

namespace kvjit {

enum class WeightType { f32, f16, bf16 };

// weights: [outputs, inputs] as stored, rows are outputs. Each run of rotation.size outputs y = W x becomes R y.
// Computed in double, rounded once to the same type. A bias is inputs = 1. Fails with unsupported when a number leaves
// the type's range.
Result<std::vector<std::uint8_t>> rotate_outputs(const Rotation& rotation, WeightType type, long long outputs,
                                                 long long inputs, std::span<const std::uint8_t> weights);

// The other end: a projection that takes rotated inputs and gives what it gave before, (W R^T) (R y) = W y.
Result<std::vector<std::uint8_t>> rotate_inputs(const Rotation& rotation, WeightType type, long long outputs,
                                                long long inputs, std::span<const std::uint8_t> weights);

// What to rotate in a model.
struct WeightRequest {
  Rotation rotation;
  std::vector<std::string> tensors;  // projections [outputs, inputs] and their biases [outputs]
  std::string side;                  // "v", "k", "q", or "o": the projection that takes what was rotated
  int head_dim = 0;
  bool has_no_rope = false, has_no_qk_norm = false;  // stated by the user, who knows the model
};

// The new bytes of each named tensor. Refuses keys and queries where RoPE or a QK norm may follow, a weight without its
// bias, types that are not floats of 16 or 32 bits, and shapes that are not whole heads.
Result<std::map<std::string, std::vector<std::uint8_t>>> rotated_tensors(const Safetensors& model,
                                                                         const WeightRequest& request);

}  // namespace kvjit
