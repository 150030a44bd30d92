// Arguments of prefill in two passes. The first pass dequantizes a chunk of the context to halves, by a kernel of the
// codec; the second attends to that chunk. Both are repeated for each chunk, so the memory for halves does not grow
// with the context. Between the launches of the second pass, the sums and the softmax of all query rows wait in memory.
// SPDX-License-Identifier: MIT
#pragma once
#include "args/page_table.cuh"
#include "args/seen_tokens.cuh"

namespace kv {

// Rows of a chunk that leave the range of halves. The first pass divides each by a power of two, and stores the
// exponent in the plane of scales of the halves: a byte a row, with the bias of float32. Where no row of a chunk has
// one, the second pass takes a kernel that does not look.
struct RowPowers {
  // `chunk`, if a row of one of the two sides has a power of two. Else nobody has written it; if it holds that number
  // by chance, the kernel that looks is taken, with the same result.
  u32* used;
  u32 chunk;  // the number of the chunk: another one for each
};

// The chunk of a launch of the second pass. Keys and values are those of its tokens alone.
struct ContextChunkArgs {
  int first_token,  // of the sequences; a multiple of the tokens of a tile
      end_token;    // the first token behind the chunk
  int is_last;      // the output is stored; else the sums are
  // The sums and the softmax of the query rows over the chunks before, one slot for each work tile: partial and
  // partial_state of AttentionArgs have the same layout.
  float* sums;
  float* state;
  RowPowers powers;  // read by plans whose K or V may have them
};
struct ContextChunkAttentionArgs : AttentionArgs {
  ContextChunkArgs context_chunk;
};

// Arguments of kernels over sequences that have lengths (formats/stored_lengths.cuh): dequantize as the first pass,
// which reads no token after the end of its sequence and none that no query sees; and quantize of a call's new tokens,
// which are the last ones of each sequence. Without lengths all sequences have the tokens of the call.
struct BoundedCodecArgs : PagedCodecArgs {
  const int* lengths;  // tokens of each sequence, in device memory, or null
  int most;            // tokens of a sequence, at most; a greater length counts as this
  // 1: the previous kernel stores the other side of the same chunk. This one reads and writes nothing of that, so it
  // waits for it at its end, not at its start, and both run at the same time. All before the two has ended by then: the
  // previous kernel lets this one start only behind its own wait.
  int waits_at_end;
  SeenArgs seen;  // read by kernels of programs whose queries may leave tokens unseen
  u8* exponents;  // of rows, in the order of x: written by kernels of the first pass whose rows may have powers of two
  RowPowers powers;
};

}  // namespace kv
