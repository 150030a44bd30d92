// Draws random inputs of features, and computes scores by the formula: see feature_inputs.hpp.
// SPDX-License-Identifier: MIT
#include "tools/verify/feature_inputs.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "generator/formats/reference_codec.hpp"
#include "tools/verify/uniform.hpp"

namespace kvjit {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Strides of dense rows of `row` elements. Variant 0: a row for each sequence, head and query. Variant 1: one row for
// all heads. Variant 2: one row for all heads and sequences.
FeatureInputs::Strides strides_of(const FeatureShape& shape, long long row, int variant) {
  const long long heads = variant % 3 == 0 ? shape.q_heads : 1;
  FeatureInputs::Strides strides{row * shape.query_length * heads, heads > 1 ? row * shape.query_length : 0, row};
  if (variant % 3 == 2 || shape.ragged_sequences > 0) strides.sequence = 0;
  return strides;
}
std::size_t elements(const FeatureShape& shape, const FeatureInputs::Strides& strides, long long row) {
  return static_cast<std::size_t>((shape.sequences - 1) * strides.sequence + (shape.q_heads - 1) * strides.head +
                                  (shape.query_length - 1) * strides.query + row);
}

}  // namespace

FeatureInputs random_features(const FeatureSet& set, const FeatureShape& shape, std::uint64_t seed, int variant) {
  constexpr int kMaskBlock = 64;  // tokens of a block, which are hidden, zero or random as a whole
  constexpr int kTree = 40;       // tokens at the end for which a packed mask has bits, as for a tree of drafted tokens
  Uniform random(seed);
  FeatureInputs inputs;
  if (set.mask) {
    inputs.mask_strides = strides_of(shape, shape.tokens, variant);
    inputs.mask.resize(elements(shape, inputs.mask_strides, shape.tokens));
    int kind = 0;  // kind of the current block: 3: hidden, 4: zero, 0 to 2: random numbers
    for (std::size_t i = 0; i < inputs.mask.size(); ++i) {
      if (i % kMaskBlock == 0) kind = random.below(5);
      const double number = random.between(-1, 1);
      inputs.mask[i] = kind == 3   ? -std::numeric_limits<float>::infinity()
                       : kind == 4 ? 0.f
                                   : float_from_f16(f16_from_float(static_cast<float>(number)));
    }
  }
  if (set.packed_mask) {
    inputs.packed_tokens = variant % 2 == 0 ? kTree : 0;
    const long long words = ((inputs.packed_tokens ? inputs.packed_tokens : shape.tokens) + 31) / 32;
    inputs.packed_strides = strides_of(shape, words, variant + 1);
    inputs.packed_mask.resize(elements(shape, inputs.packed_strides, words));
    for (std::uint32_t& word : inputs.packed_mask) word = static_cast<std::uint32_t>(random.bits());
  }
  if (set.position_offset) {
    inputs.position_offset = random.below(40) - 20;
    if (variant % 2 == 0)
      for (int s = 0; s < std::max(shape.sequences, shape.ragged_sequences); ++s)
        inputs.position_offsets.push_back(random.below(9) - 4);
  }
  if (set.token_ranges)
    for (int s = 0; s < std::max(shape.sequences, shape.ragged_sequences); ++s) {
      const int a = random.below(shape.tokens + 1), b = random.below(shape.tokens + 1);
      const bool hides_all = random.once_in(8);
      inputs.token_ranges.push_back(random.once_in(3) ? 0 : std::min(a, b));
      inputs.token_ranges.push_back(hides_all ? 0 : random.once_in(3) ? shape.tokens : std::max(a, b));
    }
  if (set.has_slopes()) inputs.slopes = alibi_slopes(8, shape.q_heads).value();
  if (set.sinks)
    for (int h = 0; h < shape.q_heads; ++h) inputs.sinks.push_back(static_cast<float>(random.between(-10, 10)));
  return inputs;
}

double ScoreRule::score(int head, int query, long long token, double score) const {
  const auto place = [&](const FeatureInputs::Strides& s) {
    return sequence_ * s.sequence + head * s.head + (first_query_ + query) * s.query;
  };
  long long position = tokens_ - query_length_ + query + inputs_.position_offset;
  if (!inputs_.position_offsets.empty()) position += inputs_.position_offsets[static_cast<std::size_t>(sequence_)];
  if (causal_ && token > position) return -kInfinity;
  if (set_.window_left >= 0 && token < position - set_.window_left) return -kInfinity;
  if (set_.window_right >= 0 && token > position + set_.window_right) return -kInfinity;
  if (set_.token_ranges) {
    const auto at = static_cast<std::size_t>(2 * sequence_);
    if (token < inputs_.token_ranges[at] || token >= inputs_.token_ranges[at + 1]) return -kInfinity;
  }
  if (set_.packed_mask) {
    const long long bit = inputs_.packed_tokens ? token - (tokens_ - inputs_.packed_tokens) : token;
    if (bit >= 0 &&
        !(inputs_.packed_mask[static_cast<std::size_t>(place(inputs_.packed_strides) + bit / 32)] >> bit % 32 & 1))
      return -kInfinity;
  }
  if (set_.softcap > 0) score = set_.softcap * std::tanh(score / set_.softcap);
  const double slope = set_.has_slopes() ? inputs_.slopes[static_cast<std::size_t>(head)] : 1;
  if (set_.alibi) score += slope * static_cast<double>(token - position);
  if (set_.mask) {
    const double added = inputs_.mask[static_cast<std::size_t>(place(inputs_.mask_strides) + token)];
    if (added == -kInfinity) return -kInfinity;
    score += (set_.mask_slopes ? slope : 1) * added;
  }
  return score;
}

double ScoreRule::sink(int head) const {
  return set_.sinks && !inputs_.leaves_sinks ? inputs_.sinks[static_cast<std::size_t>(head)] : -kInfinity;
}

}  // namespace kvjit
