// FeatureInputs: the arrays that a call's features read. random_features draws them as the test suites of other
// libraries do. ScoreRule computes the score of one query and token by the formula, in double precision. It is the only
// code of the oracle that knows features, and shares nothing with the kernels.
// SPDX-License-Identifier: MIT
#pragma once
#include <cstdint>
#include <vector>

#include "generator/spec/features.hpp"

namespace kvjit {

struct FeatureInputs {
  struct Strides {
    long long sequence = 0;
    long long head = 0;
    long long query = 0;
  };
  std::vector<float> mask;                 // numbers that f16 holds exactly; the tokens of a row are dense
  Strides mask_strides;                    // elements
  std::vector<std::uint32_t> packed_mask;  // a bit a token, lowest bit first; set: the token is seen
  Strides packed_strides;                  // words of 32 bits
  int packed_tokens = 0;                   // last tokens of a sequence for which there are bits; 0: all
  int position_offset = 0;                 // tokens, added to the position of every query
  std::vector<int> position_offsets;       // tokens, added to the positions of each sequence's queries; or empty
  std::vector<int> token_ranges;  // of each sequence: the first token that is seen, and the one behind the last
  std::vector<float> slopes;      // ALiBi's slope of each query head
  std::vector<float> sinks;       // logit of each query head's sink
  bool leaves_sinks = false;      // the call passes no sinks, though its program has the feature
};

struct FeatureShape {
  int sequences = 1;
  int q_heads = 1;       // query heads of a sequence
  int query_length = 1;  // queries of a sequence
  int tokens = 1;        // tokens of a row of a mask
  // Sequences of a ragged batch. Its masks are those of one sequence that has all queries. 0: the batch is not ragged.
  int ragged_sequences = 0;
};

// Fills the arrays that the features of `set` read, and no others. Masks are uniform in [-1, 1]; a fifth of their
// blocks of 64 tokens is minus infinity (hidden), another fifth is zero. Slopes are those of max_bias 8. Sinks are in
// [-10, 10]. `variant` decides which strides are 0, for how many tokens the packed mask has bits, and whether each
// sequence has its own position offset.
FeatureInputs random_features(const FeatureSet& set, const FeatureShape& shape, std::uint64_t seed, int variant = 0);

// The scores of one sequence by the formula, in double precision. A ScoreRule refers to `set` and `inputs`, which must
// outlive it.
class ScoreRule {
 public:
  // first_query: of a ragged batch, the row of the masks that the sequence's query 0 has.
  ScoreRule(const FeatureSet& set, bool causal, const FeatureInputs& inputs, int sequence, int query_length,
            long long tokens, int first_query = 0)
      : set_(set),
        causal_(causal),
        inputs_(inputs),
        sequence_(sequence),
        query_length_(query_length),
        tokens_(tokens),
        first_query_(first_query) {}

  // The score that enters the softmax; minus infinity if the query does not see the token. `score`: q.k times the
  // scale.
  double score(int head, int query, long long token, double score) const;
  // The logit of the head's sink; minus infinity if there is none.
  double sink(int head) const;

 private:
  const FeatureSet& set_;
  bool causal_;
  const FeatureInputs& inputs_;
  int sequence_;
  int query_length_;
  long long tokens_;  // tokens of the sequence
  int first_query_;
};

}  // namespace kvjit
