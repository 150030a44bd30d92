// What a call brings for its features. A kernel gets it, behind its other arguments, only if its plan has a feature
// that reads it; the runtime includes this very file. Query heads count through all KV heads; strides count elements,
// and 0 makes one row serve all.
// SPDX-License-Identifier: MIT
#pragma once
#include "args/attention.cuh"

namespace kv {

struct FeatureArgs {
  // mask: added to the scores, [sequence][query head][query][token] of halves, tokens dense; -infinity: not seen
  const u16* mask;
  i64 mask_sequence_stride, mask_head_stride, mask_query_stride;
  // packed mask: bit t % 32 of word t / 32 is whether the query sees token t of the newest packed_tokens ones (0: of
  // all); it sees those before
  const u32* packed_mask;
  i64 packed_sequence_stride, packed_head_stride, packed_query_stride;  // of words
  int packed_tokens;
  int position_offset;          // query i stands at token length - query_length + i + this ...
  const int* position_offsets;  // ... plus this of its sequence; null: nothing more
  const float* slopes;          // of each query head
  const float* sinks;           // of each query head; null: they are counted elsewhere
  float* lse;                   // [sequence][query][query head]: natural logarithm of the sum of exp(score)
};

// merge_contexts. grid: a warp a row, [sequence][query][head] of them. Outputs are of the program's out type.
struct MergePart {
  Rows out;
  const float* lse;  // [sequence][query][query head], as in FeatureArgs
};
constexpr int kMostMergeParts = 16;
struct MergePartsArgs {
  MergePart parts[kMostMergeParts];
  int count, sequences, queries, heads;
  Rows out;
  float* lse;  // of the whole; null: not wanted
};

// The arguments of a kernel with features.
template <class Args>
struct Featured : Args {
  FeatureArgs features;
};

}  // namespace kv
