// Queries as B fragments of the tensor cores: gathered once a block in the order the packing of K gives, kept in shared
// memory or in registers.
// SPDX-License-Identifier: MIT
#pragma once
#include "core/args.cuh"
#include "core/simt.cuh"

namespace kv {

// Queries to shared memory as B fragments, [step][block of 8 rows][lane] of kQueryParts x (b0, b1). An f16
// query is exact in one part; an f32 one (rotated) is split into high and low halves, exact to 2^-22, after a division by kQueryUnit
// that lets it be as large as 4e6.
template <class Plan>
constexpr float kQueryUnit = Plan::kQueryParts == 2 ? 64.f : 1.f;

template <class Plan>
KV_DEVICE void load_queries(SharedAddress to, const AttentionArgs& args) {
  constexpr int kSteps = Plan::kKeyDim / 16, kItems = kSteps * Plan::kColumnBlocks * 32;
  KV_NO_UNROLL
  for (int i = thread(); i < kItems; i += Plan::kThreads) {
    const int step = i / (32 * Plan::kColumnBlocks), row = i / 32 % Plan::kColumnBlocks * 8 + (i >> 2 & 7), c = i & 3;
    const int query = row / Plan::kGroup, head = block_y() * Plan::kGroup + row % Plan::kGroup;
    const i64 at = block_z() * args.q.sequence_stride + query * args.q.query_stride + head * args.q.head_stride;
    float high[4], low[4];
    KV_UNROLL
    for (int j = 0; j < 4; ++j) {
      const float q = row < Plan::kRows ? Plan::load_query(args.q.data, at + Plan::key_order((step * 4 + c) * 4 + j)) /
                                              kQueryUnit<Plan>
                                        : 0.f;
      high[j] = f32_from_f16(f16_from_f32(q));
      low[j] = q - high[j];
    }
    const u32 b0 = pack_f16x2(high[0], high[1]), b1 = pack_f16x2(high[2], high[3]);
    if constexpr (Plan::kQueryParts == 2) {
      store_shared_u128(to + i * 16, b0, b1, pack_f16x2(low[0], low[1]), pack_f16x2(low[2], low[3]));
    } else {
      store_shared_u32(to + i * 8, b0);
      store_shared_u32(to + i * 8 + 4, b1);
    }
  }
}

// Sums of Q over the dimensions of each group of K, for formats that add a minimum to all values of a group: that part of a score is
// minimum times sum. [group][row], in the unit of the fragments.
template <class Plan>
KV_DEVICE float query_sum(int group, int row) {
  return float_of(load_shared_u32(Plan::kSumsAt + (group * Plan::kColumnBlocks * 8 + row) * 4));
}
template <class Plan>
KV_DEVICE void sum_queries(const AttentionArgs& args) {
  constexpr int kRows = Plan::kColumnBlocks * 8,
                kGroupDim = Plan::kKeyDim / (Plan::kSumGroups > 0 ? Plan::kSumGroups : 1);
  KV_NO_UNROLL
  for (int i = thread(); i < Plan::kSumGroups * kRows; i += Plan::kThreads) {
    const int row = i % kRows, query = row / Plan::kGroup, head = block_y() * Plan::kGroup + row % Plan::kGroup;
    const i64 at = block_z() * args.q.sequence_stride + query * args.q.query_stride + head * args.q.head_stride;
    float sum = 0.f;
    for (int d = 0; d < kGroupDim && row < Plan::kRows; ++d)
      sum += Plan::load_query(args.q.data, at + i / kRows * kGroupDim + d);
    store_shared_u32(Plan::kSumsAt + i * 4, bits_of(sum / kQueryUnit<Plan>));
  }
}

// The lane's B fragments of Q: held in registers where there is room, else read again for every 16 tokens.
template <class Plan>
struct Queries {
  static constexpr int kFragments = Plan::kKeyDim / 16 * Plan::kColumnBlocks, kWords = 2 * Plan::kQueryParts;
  u32 held[Plan::kHoldQueries ? kFragments : 1][kWords];
  SharedAddress at;

  KV_DEVICE void read(int fragment, u32 (&q)[kWords]) const {
    if constexpr (kWords == 4)
      load_shared_u128(q, at + (fragment * 32 + lane()) * 16);
    else
      load_shared_u64(q, at + (fragment * 32 + lane()) * 8);
  }
  KV_DEVICE void hold() {
    if constexpr (Plan::kHoldQueries) {
      KV_UNROLL
      for (int i = 0; i < kFragments; ++i) read(i, held[i]);
    }
  }
  KV_DEVICE void get(int fragment, u32 (&q)[kWords]) const {
    if constexpr (Plan::kHoldQueries) {
      KV_UNROLL
      for (int i = 0; i < kWords; ++i) q[i] = held[fragment][i];
    } else {
      read(fragment, q);
    }
  }
};

}  // namespace kv
