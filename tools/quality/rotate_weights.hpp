// Rotates a model's projections in its file (`kvjit rotate-weights`), so that they produce rotated keys, values or
// queries and no kernel has to rotate them.
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

// Rotates the outputs of a projection: each group of rotation.size outputs y = W x becomes R y. `weights` are
// [outputs, inputs] as stored; a bias has inputs = 1. The numbers are computed in double and rounded once to their
// type. Fails with Code::unsupported if a number leaves the range of the type.
Result<std::vector<std::uint8_t>> rotate_outputs(const Rotation& rotation, WeightType type, long long outputs,
                                                 long long inputs, std::span<const std::uint8_t> weights);

// Rotates the inputs of a projection, so that it takes rotated inputs and gives the same outputs: (W R^T) (R y) = W y.
Result<std::vector<std::uint8_t>> rotate_inputs(const Rotation& rotation, WeightType type, long long outputs,
                                                long long inputs, std::span<const std::uint8_t> weights);

// A request to rotate tensors of a model.
struct WeightRequest {
  Rotation rotation;
  std::vector<std::string> tensors;  // names of projections [outputs, inputs] and of their biases [outputs]
  std::string side;                  // "v", "k", "q", or "o": the output projection, which takes rotated values
  int head_dim = 0;                  // channels of a head
  bool has_no_rope = false;          // the user states that no RoPE follows the projection
  bool has_no_qk_norm = false;       // the user states that no norm follows the projection
};

// Returns the new bytes of each named tensor. Refuses keys and queries if RoPE or a QK norm may follow, a weight
// without its bias, types other than floats of 16 or 32 bits, and shapes that are not whole heads.
Result<std::map<std::string, std::vector<std::uint8_t>>> rotated_tensors(const Safetensors& model,
                                                                         const WeightRequest& request);

}  // namespace kvjit
