// Model: the weights of a small decoder-only language model on the device. They come from a safetensors file whose
// metadata state the shape. A layer computes
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

// Throws std::runtime_error with kvjit's message if the status is not KVJIT_OK.
void require(kvjit_status status, const kvjit_error& error);

struct Shape {
  int vocabulary = 0;  // tokens
  int width = 0;       // channels between layers
  int layers = 0;
  int q_heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  int hidden = 0;   // channels inside the feed-forward block
  int context = 0;  // tokens, by the metadata of the file
  float theta = 0;  // base of the rotary positions
};

class Model {
 public:
  Model(const kvjit::api::Context& context, const std::string& file);

  const Shape& shape() const { return shape_; }
  // The weights [outputs][inputs] of a tensor by its name: "emb.weight", or layer 3 and "q.bias".
  const half_bits* weight(const std::string& name) const;
  const half_bits* weight(int layer, const std::string& name) const;

 private:
  Shape shape_;
  kvjit::api::Memory memory_;
  std::map<std::string, std::size_t> places_;  // offset of each tensor in memory_, in bytes
};

}  // namespace engine
