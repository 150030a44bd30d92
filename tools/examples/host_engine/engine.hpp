// Engine: a model with a KV cache in formats of the caller's choice. Prompts go in by chunks of decode rows: each
// chunk's K and V are quantized into the cache, then its queries attend to everything that the cache holds by then.
// SPDX-License-Identifier: MIT
#pragma once
#include <array>
#include <map>
#include <vector>

#include "model.hpp"

namespace engine {

struct Formats {
  std::string k, v;
};

class Engine {
 public:
  // Room for `capacity` tokens of each of `sequences` texts that are fed side by side.
  Engine(const kvjit::api::Context& context, Math& math, const Model& model, const Formats& formats, int sequences,
         int capacity);

  // The next tokens of every sequence, [sequences][chunk]; the cache holds them afterwards. Any chunk; a new size
  // compiles a program.
  void feed(const std::vector<int>& tokens, int chunk);
  // Of the chunk fed last: -log of the probability that each token is followed by its target, [sequences][chunk].
  std::vector<float> losses(const std::vector<int>& targets);
  // Of the last token of the first sequence.
  std::vector<float> last_logits();

  int length() const { return length_; }
  double cache_bits_per_value() const { return bits_per_value_; }  // mean of K and V

 private:
  using Memory = kvjit::api::Memory;

  const kvjit::api::Program& program(int chunk);
  void attend(int layer, int chunk);
  void grow(Memory& memory, std::size_t bytes);
  float* floats(Memory& memory, long long count);
  half_bits* halves(Memory& memory, long long count);

  const kvjit::api::Context& context_;
  Math& math_;
  const Model& model_;
  Formats formats_;
  int sequences_, capacity_, length_ = 0, chunk_ = 0;
  double bits_per_value_ = 0;
  std::map<int, kvjit::api::Program> programs_;   // by query length
  std::vector<std::array<kvjit_side, 2>> cache_;  // of each layer, K and V
  Memory cache_memory_, workspace_, tokens_, targets_, x_, h_, q_, k_, v_, out_, gate_, up_, gated_, logits_, losses_;
};

}  // namespace engine
