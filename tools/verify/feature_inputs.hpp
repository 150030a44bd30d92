// What a call's features read, as host arrays; random ones as the peers' suites have them; and what they make of
// scores, in double.
// SPDX-License-Identifier: MIT
#pragma once
#include <cstdint>
#include <vector>

#include "generator/spec/features.hpp"

namespace kvjit {

struct FeatureInputs {
  struct Strides {  // of elements
    long long sequence = 0, head = 0, query = 0;
  };
  std::vector<float> mask;  // numbers that halves hold; a row is dense
  Strides mask_strides;
  std::vector<std::uint32_t> packed_mask;
  Strides packed_strides;  // of words
  int packed_tokens = 0;
  int position_offset = 0;
  std::vector<int> position_offsets;
  std::vector<float> slopes, sinks;
  bool leaves_sinks = false;
};

struct FeatureShape {
  int sequences = 1, q_heads = 1, query_length = 1, tokens = 1;  // tokens: that a row of a mask has
};

// What the features of a set read, and nothing else. Masks are uniform in [-1, 1], with a fifth of their blocks of 64
// tokens not seen and a fifth zero; slopes are of max_bias 8; sinks are in [-10, 10]. variant: which strides are 0, how
// many tokens bits are for.
FeatureInputs random_features(const FeatureSet& set, const FeatureShape& shape, std::uint64_t seed, int variant = 0);

// Scores of one sequence by the book, in double.
class ScoreRule {
 public:
  ScoreRule(const FeatureSet& set, bool causal, const FeatureInputs& inputs, int sequence, int query_length,
            long long tokens)
      : set_(set),
        causal_(causal),
        inputs_(inputs),
        sequence_(sequence),
        query_length_(query_length),
        tokens_(tokens) {}

  // q.k times the scale of a query head, query and token, as it goes into the softmax; minus infinity: not seen.
  double score(int head, int query, long long token, double score) const;
  double sink(int head) const;  // minus infinity: none

 private:
  const FeatureSet& set_;
  bool causal_;
  const FeatureInputs& inputs_;
  int sequence_, query_length_;
  long long tokens_;
};

}  // namespace kvjit
