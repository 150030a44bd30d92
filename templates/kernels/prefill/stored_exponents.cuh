// Exponents of rows that the first pass of prefill in two has stored (kernels/codec/row_powers.cuh). They are copied
// with the halves of a tile.
// SPDX-License-Identifier: MIT
#pragma once
#include "kernels/prefill/exponents.cuh"

namespace kv {

template <class Plan, bool kIsV>
requires(HasExponents<Plan, kIsV>) struct StoredExponents<Plan, kIsV> {
  // Copies the exponents of the warp's tokens of a tile to stage n. Tokens that do not exist get zeros: their
  // probabilities are zeros, too.
  KV_DEVICE static void copy(const CacheSide& side, const WorkTile& work, int tile, int n, int stored_from) {
    constexpr int kBytes = Plan::kTile < 16 ? Plan::kTile : 16;
    const int own = warp() * Plan::kTile + lane() * kBytes, token = tile * Plan::kTokens + own;
    if (lane() >= Plan::kTile / kBytes) return;
    const u8* const row = side.scales + work.sequence * side.scales_sequence_stride +
                          work.head * side.scales_head_stride;
    const int valid = clamp_to(work.length - token, kBytes);
    copy_async<kBytes>(TokenExponents<Plan, kIsV>::stage(n) + own, row + (valid > 0 ? token - stored_from : 0), valid);
  }
};

}  // namespace kv
