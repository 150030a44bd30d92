// ALiBi as FlashAttention has it: slope * (token - position of the query) is added to the score.
// SPDX-License-Identifier: MIT
#pragma once
#include "features/feature_list.cuh"

namespace kv {

struct Alibi : FeatureDefaults<Alibi> {
  struct Row {
    float slope;   // of the query head, times log2(e)
    int position;  // of the query
  };
  KV_DEVICE static Row row(const FeatureArgs& args, const QueryRow& at) {
    return {args.slopes[at.head] * kLog2E, at.position};
  }
  KV_DEVICE static float apply(float score, const Row& row, const Loaded&, int token) {
    return score + float(token - row.position) * row.slope;
  }
};

}  // namespace kv
