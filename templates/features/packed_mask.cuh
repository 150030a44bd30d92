// Packed mask: a bit for each (query row, token) says whether the row sees the token. The bits cover the last tokens of
// a sequence, or all of them (FeatureArgs::packed_tokens). A tree of draft tokens is expressed by such a mask.
// SPDX-License-Identifier: MIT
#pragma once
#include "features/feature_list.cuh"

namespace kv {

struct PackedMask : FeatureDefaults<PackedMask> {
  static constexpr bool kLoads = true, kMayHide = true;
  struct Row {
    const u32* words;  // the row's bits
    int first;         // the token of bit 0; those before are seen
  };
  struct Loaded {
    u32 word;  // the 32 bits among which the token's is
  };
  KV_DEVICE static Row row(const FeatureArgs& args, const QueryRow& at) {
    return {args.packed_mask + at.sequence * args.packed_sequence_stride + at.head * args.packed_head_stride +
                at.query * args.packed_query_stride,
            args.packed_tokens > 0 ? (at.length > 0 ? at.length : 1) - args.packed_tokens : 0};
  }
  KV_DEVICE static Loaded load(const Row& row, int token) {
    const int bit = token - row.first;
    return {row.words[bit < 0 ? 0 : bit / 32]};
  }
  KV_DEVICE static float apply(float score, const Row& row, const Loaded& loaded, int token) {
    const int bit = token - row.first;
    return bit < 0 || (loaded.word >> (bit & 31) & 1) ? score : minus_infinity();
  }
};

}  // namespace kv
