// Arguments of prefill in two passes. The first pass dequantizes a chunk of the context to halves, by a kernel of the
// codec; the second attends to that chunk. Both are repeated for each chunk, so the memory for halves does not grow
// with the context. Between the launches of the second pass, the sums and the softmax of all query rows wait in memory.
// SPDX-License-Identifier: MIT
#pragma once
#include "args/page_table.cuh"

namespace kv {

// The chunk of a launch of the second pass. Keys and values are those of its tokens alone.
struct ContextChunkArgs {
  int first_token,  // of the sequences; a multiple of the tokens of a tile
      end_token;    // the first token behind the chunk
  int is_last;      // the output is stored; else the sums are
  // The sums and the softmax of the query rows over the chunks before, one slot for each work tile: partial and
  // partial_state of AttentionArgs have the same layout.
  float* sums;
  float* state;
};
struct ContextChunkAttentionArgs : AttentionArgs {
  ContextChunkArgs context_chunk;
};

// Arguments of the first pass: dequantize, by kernels that read no token behind the end of its sequence
// (formats/stored_lengths.cuh).
struct BoundedCodecArgs : PagedCodecArgs {
  const int* lengths;  // tokens of each sequence, in device memory; null: all tokens of the call exist
};

}  // namespace kv
