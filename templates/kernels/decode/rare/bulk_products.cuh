// Products of a warp team whose tiles come by bulk copies (kernels/decode/rare/bulk_rows.cuh): a warp waits for the
// rows of its own tile before it scores them, and issues the copies of a later round ahead of its first product with V.
// SPDX-License-Identifier: MIT
#pragma once
#include "kernels/decode/warp_team.cuh"
#include "kernels/decode/rare/bulk_rows.cuh"

namespace kv {

template <class Plan>
struct BulkProducts : WarpProducts<Plan> {
  using K = typename Plan::K;
  static_assert(Plan::kProbabilityBuffers == 1, "probabilities tell a round's first product");

  template <class... Rest>
  KV_DEVICE static void score(Scores<Plan> (&x)[Plan::kSubtiles], SharedAddress stage, Rest&&... rest) {
    await_rows<typename K::Ring>(stage);
    if (elect()) request_of_warp<typename K::Ring>().set(CopyRequest::kAwaited);
    WarpProducts<Plan>::score(x, stage, rest...);
  }
  template <class Section>
  KV_DEVICE static void accumulate(Sums<Plan>& sums, SharedAddress stage, const u32 (&misalignment)[Plan::kSubtiles][4],
                                   SharedAddress probabilities, Table table) {
    const int first_warp = warp() / Plan::kTeam * Plan::kTeam;
    if (Section::kFirst == 0 && probabilities == TeamProbabilities<Plan>::of_warp(first_warp) && elect())
      carry_out(request_of_warp<typename K::Ring>());
    WarpProducts<Plan>::template accumulate<Section>(sums, stage, misalignment, probabilities, table);
  }

 private:
  KV_DEVICE static void carry_out(const CopyRequest& request) {
    if (request.state() == CopyRequest::kPosted)
      request.read([](SharedAddress to, const u8* from, i64 token_stride) {
        copy_rows<K, Plan::kTile>(to, from, token_stride);
      });
    request.set(CopyRequest::kIdle);
  }
};

}  // namespace kv
