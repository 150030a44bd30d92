// Engine: a language model with a KV cache in formats of the caller's choice. It processes prompts in chunks: K and V
// of a chunk are quantized into the cache, then the chunk's queries attend to the cache. One program serves chunks of
// any size: a single token by decode, a long prompt by prefill.
// SPDX-License-Identifier: MIT
#pragma once
#include <array>
#include <vector>

#include "model.hpp"

namespace engine {

struct Formats {
  std::string k;
  std::string v;
};

class Engine {
 public:
  // Allocates caches for `sequences` texts of up to `capacity` tokens each, which are processed as one batch.
  Engine(const kvjit::api::Context& context, Math& math, const Model& model, const Formats& formats, int sequences,
         int capacity);

  // Processes the next `chunk` tokens of every sequence, [sequences][chunk], and stores their K and V in the cache.
  void feed(const std::vector<int>& tokens, int chunk);
  // The cross-entropy of each token of the last chunk: -log of the probability that the target follows it.
  // [sequences][chunk].
  std::vector<float> losses(const std::vector<int>& targets);
  // The logits after the last token of the first sequence.
  std::vector<float> last_logits();

  int length() const { return length_; }                           // tokens of each sequence in the cache
  double cache_bits_per_value() const { return bits_per_value_; }  // mean of K and V

 private:
  using Memory = kvjit::api::Memory;

  void attend(int layer, int chunk);
  void grow(Memory& memory, std::size_t bytes);
  float* floats(Memory& memory, long long count);
  half_bits* halves(Memory& memory, long long count);

  const kvjit::api::Context& context_;
  Math& math_;
  const Model& model_;
  int sequences_;
  int capacity_;    // tokens
  int length_ = 0;  // tokens in the cache
  int chunk_ = 0;   // tokens of the last chunk
  double bits_per_value_ = 0;
  kvjit::api::Program program_;
  std::vector<std::array<kvjit_side, 2>> cache_;  // K and V of each layer
  Memory cache_memory_, workspace_, tokens_, targets_, x_, h_, q_, k_, v_, out_, gate_, up_, gated_, logits_, losses_;
};

}  // namespace engine
