// V in K's rows: each row of V is the first channels of K's row, in K's memory (multi-head latent attention). A tile is
// copied once, as K's, and V is read from the same stage. K::kStageBytes, which is where V begins, is 0.
// SPDX-License-Identifier: MIT
#pragma once
#include "kernels/decode/decode.cuh"

namespace kv {

template <class Side>
concept InKeys = Side::kIsInKeys;

// Copies nothing. Misalignments of rows are those of K, whose address and strides V has.
template <class Plan, InKeys Side>
struct KvTileLoader<Plan, Side> {
  const u8* first_row;  // the batch-head's first row, or with pages that of page 0
  i64 token_stride;
  static constexpr bool is_aligned = true;  // K's loader says whether rows are

  KV_DEVICE KvTileLoader(const CacheSide& side, const KvSplit& split, int)
      : first_row(side.codes + QueryChunk<Plan>(split.head).head * side.codes_head_stride),
        token_stride(side.codes_token_stride) {
    constexpr bool kIsPaged = requires { Plan::K::kPageTokens; };
    if constexpr (!kIsPaged) first_row += split.sequence * side.codes_sequence_stride;
  }
  template <bool>
  KV_DEVICE void stage(SharedAddress, int) const {}
  KV_DEVICE void advance() {}
};

}  // namespace kv
