// Warp team with V by ldmatrix: for packings where eight lanes' codes of a token are a chunk of 16 bytes. The chunks of
// eight tokens are an 8 x 8 matrix of two bytes an element, which the hardware transposes on the way to registers. One
// load brings the codes of 32 tokens, two tokens a word, so no lane has to combine the codes of two tokens.
// SPDX-License-Identifier: MIT
#pragma once
#include "kernels/decode/stage_tile.cuh"
#include "kernels/decode/warp_team_wgmma.cuh"

namespace kv {

template <class Plan>
struct MatrixProducts : WarpgroupProducts<Plan> {
  using Base = WarpgroupProducts<Plan>;
  using V = typename Plan::V;
  using S = typename Plan::ValueCodes;
  static_assert(Plan::kSubtiles == 1 && S::kGroups == 1 && S::kReads == 1,
                "two tiles are loaded together, each by one lane read");

  // Addresses of the lane: of its row of the matrices, and (Base) of the probabilities that it stores.
  struct Places : Base::Places {
    u32 row = hide_from_optimizer(place_of_lane());
  };

  // o += V^T P^T over the tiles of the whole team. first: V of the tile of the team's first warp.
  KV_DEVICE static void accumulate_all(Outputs<Plan>& o, SharedAddress first, SharedAddress probabilities,
                                       const Places& places) {
    const u32 columns = uniform(columns_at(probabilities));
    u32 a[2][2][S::kUnpackedCodes];  // two tiles are decoded while the two before are multiplied
    KV_UNROLL
    for (int i = 0; i < Plan::kTeam / 2; ++i) {
      decode(a[i % 2], first + places.row + i * 2 * Plan::kStageBytes);
      multiply(o, a[i % 2], columns_behind(columns, i * 2 * Base::kOperand));
      if (i > 0) wgmma_wait<1>();
    }
    wgmma_wait<0>();
  }

 private:
  // Lanes 8 m .. 8 m + 7 give the row addresses of matrix m. Of sixteen tokens, 0, 9, 2, 11 .. are the rows of one
  // matrix and 1, 8, 3, 10 .. of the next, so the rows of a matrix have no bank conflict. A lane's words are those that
  // CodeLaneRead unpacks, except that neighbours among tokens 8 to 15 are exchanged; the probabilities are stored in
  // that order.
  KV_DEVICE static u32 place_of_lane() {
    const int i = lane() & 7, odd = lane() >> 3 & 1, token = (i ^ odd) + i % 2 * 8,
              chunk = TeamWarp<Plan>::value_slice() * 16;
    return swizzled<V::kSwizzle>(token * V::kPitch + chunk) + (lane() >> 4) * Plan::kStageBytes;
  }
  KV_DEVICE static void decode(u32 (&a)[2][S::kUnpackedCodes], SharedAddress at) {
    u32 w[4];
    load_matrices_transposed(w, at);
    KV_UNROLL
    for (int tile = 0; tile < 2; ++tile) {
      const u32 even[1] = {w[2 * tile]}, odd[1] = {w[2 * tile + 1]};
      S::Read::column(even, odd, a[tile], table_of_lane<V::kTableCopies>());
    }
  }
  KV_DEVICE static void multiply(Outputs<Plan>& o, const u32 (&a)[2][S::kUnpackedCodes], u32 columns) {
    constexpr int kBlocks = S::kReadCodes / 2;  // blocks of 16 dimensions, a lane
    wgmma_begin();
    KV_UNROLL
    for (int i = 0; i < 2 * kBlocks; ++i) {
      const int tile = i / kBlocks, block = i % kBlocks;
      const u32* const words = a[tile] + block * 4;
      const auto sum = [&](int j) -> float& { return o[j / 4][block][j % 4]; };
      wgmma_columns<Base::kColumns, true>(sum, words[0], words[1], words[2], words[3],
                                          columns_behind(columns, tile * Base::kOperand), true);
    }
    wgmma_commit();
  }
};

}  // namespace kv
