// Features of token-major heads: a block has rows for the features of all its heads, and a warp reads those of its own
// head. Staged rows are not in the order of the tokens (kernels/decode/stage_token_heads.cuh).
// SPDX-License-Identifier: MIT
#pragma once
#include "kernels/decode/features.cuh"
#include "kernels/decode/token_heads.cuh"

namespace kv {

template <TakesHeads Plan>
struct ScorePlaces<Plan> {
  static_assert(Plan::kColumnBlocks == 1, "a head has one block of columns");
  using Block = AllFragments<Plan>;
  static constexpr int kMostAhead = 0;  // 16 warps leave no registers for loads in flight (q4_0 would spill)
  KV_DEVICE static int first_row() { return own_head<Plan>() * 8; }
  KV_DEVICE static int column_of(int i) { return 2 * (lane() & 3) + i % 2; }
  KV_DEVICE static int token_of(int i) {
    return token_of_row<Plan::kTile>(i / 4 * 16 + (lane() >> 2) + 8 * (i % 4 / 2));
  }
};

}  // namespace kv
