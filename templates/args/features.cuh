// Arguments of attention features, of merge_contexts and of mask_ranges. FeatureArgs stand behind the other arguments
// of decode, merge and reference if the plan has any feature or window. Plans with causal masking alone go without. The
// runtime includes this very file.
//
// Query heads are numbered through all KV heads. Strides count elements, and a stride of 0 makes one row serve all.
// SPDX-License-Identifier: MIT
#pragma once
#include "args/attention.cuh"

namespace kv {

struct FeatureArgs {
  // mask: halves that are added to the scores, [sequence][query head][query][token]. Tokens are dense. -infinity hides
  // a token.
  const u16* mask;
  i64 mask_sequence_stride, mask_head_stride, mask_query_stride;
  // packed mask, [sequence][query head][query][word]: bit t % 32 of word t / 32 is set if the query sees token t of the
  // last packed_tokens tokens. Tokens before those are seen.
  const u32* packed_mask;
  i64 packed_sequence_stride, packed_head_stride, packed_query_stride;  // words
  int packed_tokens;                                                    // 0: bits count from token 0 of the sequence
  // Query i stands at token length - query_length + i + position_offset + position_offsets[sequence].
  int position_offset;
  const int* position_offsets;  // [sequence]; null: zeros
  const int* token_ranges;      // [sequence] of the first token that its queries see, and of the token behind the last
  const float* slopes;          // alibi, mask_slopes: one slope a query head
  const float* sinks;           // one logit a query head; null: another call counts them
  float* lse;                   // [sequence][query][query head]: natural logarithm of the sum of exp(score)
};

// One input of merge_contexts: the output of a call over a part of the context, in the program's out type.
struct MergeContext {
  Rows out;
  const float* lse;  // [sequence][query][query head], as in FeatureArgs
};
constexpr int kMostMergeContexts = 16;  // inputs of one call; what is merged can be merged again
// Arguments of merge_contexts. Rows are numbered [sequence][query][head]; one warp takes one row.
struct MergeContextsArgs {
  MergeContext contexts[kMostMergeContexts];
  int count,  // inputs in `contexts`
      sequences, queries, heads;
  Rows out;    // the output over the whole context, in the program's out type
  float* lse;  // the LSE over the whole context; null: not wanted
};

// Arguments of mask_ranges. The mask is that of FeatureArgs.
struct MaskRangesArgs {
  const u16* mask;
  i64 mask_sequence_stride, mask_head_stride, mask_query_stride;
  const int* lengths;          // tokens of each sequence; null: `tokens`
  int tokens, queries, heads;  // queries of a sequence; query heads, or 1 if one mask serves all
  int* token_ranges;           // [sequence] of two, as in FeatureArgs
};

// Arguments of a kernel with features.
template <class Args>
struct Featured : Args {
  FeatureArgs features;
};

}  // namespace kv
