// Model: the weights of a small decoder-only language model on the device, read from a safetensors file whose metadata
// give the shape.
//
//   x += o attention(q h, k h, v h), h = norm(x);  x += down (silu(gate h) * (up h)), h = norm(x)
//
// SPDX-License-Identifier: MIT
#pragma once
#include <map>
#include <stdexcept>
#include <string>

#include "math.hpp"

namespace engine {

// Throws std::runtime_error with kvjit's words.
void require(kvjit_status status, const kvjit_error& error);

struct Shape {
  int vocabulary = 0, width = 0, layers = 0, q_heads = 0, kv_heads = 0, head_dim = 0, hidden = 0, context = 0;
  float theta = 0;
};

class Model {
 public:
  Model(const kvjit::api::Context& context, const std::string& file);

  const Shape& shape() const { return shape_; }
  // Rows are outputs. "emb.weight", "layers.3.q.bias" ...
  const half_bits* weight(const std::string& name) const;
  const half_bits* weight(int layer, const std::string& name) const;

 private:
  Shape shape_;
  kvjit::api::Memory memory_;
  std::map<std::string, std::size_t> places_;  // byte of each tensor
};

}  // namespace engine
