// Queries as B fragments of the tensor cores. A block's rows of Q are loaded once a part, transformed into K's domain where the plan
// fuses that, and gathered in the order that the packing of K gives. One row a warp on the way in; then fragments in shared memory:
//
//   halves     [step of 16][block of 8 rows][lane] of kQueryParts x (b0, b1). An f16 query is exact in one part; an f32 one is
//              split into high and low halves, exact to 2^-22, after a division by 64 that lets it be as large as 4e6
//   integers   [step of 32][block of 8 rows][lane] of high (b0, b1) and low (b0, b1) bytes of 16-bit integers, in a unit that the
//              largest magnitude of all rows gives
//
// SPDX-License-Identifier: MIT
#pragma once
#include "core/args.cuh"
#include "core/integers.cuh"
#include "core/simt.cuh"
#include "formats/inner.cuh"

namespace kv {

constexpr float kLargestQuery = 32512.f;  // 127 * 256: with it the high byte of a rounded integer stays within a signed byte

template <class Plan>
KV_DEVICE SharedAddress query_sum_at(int group, int row) {
  return Plan::kSumsAt + (group * Plan::kColumnBlocks * 8 + row) * 4;
}

// Rows of Q on their way to shared memory: some of the block's, in registers.
template <class Plan>
class QueryRows {
  static constexpr int kPerLane = Plan::kQueryStored / 32, kPerWarp = (Plan::kRows + Plan::kWarps - 1) / Plan::kWarps;
  static constexpr int kPitch = Plan::kKeyDim + 4;  // floats: rows meet different banks
  float x_[kPerWarp][kPerLane];

 public:
  KV_DEVICE void load(const AttentionArgs& args, int sequence, int head) {
    KV_UNROLL
    for (int i = 0; i < kPerWarp; ++i) {
      const int row = i * Plan::kWarps + warp(), query = row / Plan::kGroup;
      const i64 at = sequence * args.q.sequence_stride + query * args.q.query_stride +
                     (i64(head) * Plan::kGroup + row % Plan::kGroup) * args.q.head_stride;
      KV_UNROLL
      for (int e = 0; e < kPerLane; ++e) {
        const int d = e * 32 + lane();
        x_[i][e] = row < Plan::kRows && d < Plan::kQueryDim ? Plan::load_query(args.q.data, at + d) : 0.f;
      }
    }
  }

  // To shared memory, in K's domain: [row][kPitch] of f32, and the largest magnitude of each row.
  KV_DEVICE void store() {
    KV_UNROLL
    for (int i = 0; i < kPerWarp; ++i) {
      const int row = i * Plan::kWarps + warp();
      if (row >= Plan::kRows) break;
      [[maybe_unused]] float second[kPerLane];
      if constexpr (Plan::kRotatesQueries) to_inner<typename Plan::KeyDomain>(x_[i], second);
      float largest = 0.f;
      KV_UNROLL
      for (int e = 0; e < kPerLane; ++e) {
        const int d = e * 32 + lane();
        put(row, d, x_[i][e], largest);
        if constexpr (Plan::kKeyDim > Plan::kQueryStored) put(row, Plan::kQueryStored + d, second[e], largest);
      }
      if constexpr (Plan::kSumGroups > 0) sum_groups(row, x_[i]);
      if constexpr (Plan::kHasIntegerKeys) {
        KV_UNROLL
        for (int mask = 16; mask > 0; mask >>= 1) largest = larger(largest, shfl_xor(largest, mask));
        store_shared_u32(Plan::kLargestAt + row * 4, bits_of(largest));
      }
    }
  }

  // After store() and a barrier of the block.
  KV_DEVICE static float get(int row, int d) {
    return row < Plan::kRows ? float_of(load_shared_u32(Plan::kScratchAt + (row * kPitch + d) * 4)) : 0.f;
  }
  KV_DEVICE static float largest() {
    float all = 1e-30f;
    KV_UNROLL_BY(8)
    for (int row = 0; row < Plan::kRows; ++row)
      all = larger(all, float_of(load_shared_u32(Plan::kLargestAt + row * 4)));
    return all;
  }

 private:
  // Sums over the dimensions of each group of K: what a code's constant part (a minimum, a half) is multiplied with.
  KV_DEVICE static void sum_groups(int row, const float (&x)[kPerLane]) {
    constexpr int kRegisters = kPerLane / Plan::kSumGroups;  // a group
    static_assert(kRegisters * Plan::kSumGroups == kPerLane, "groups of whole registers");
    KV_UNROLL
    for (int group = 0; group < Plan::kSumGroups; ++group) {
      float sum = 0.f;
      KV_UNROLL
      for (int e = 0; e < kRegisters; ++e) sum += x[group * kRegisters + e];
      KV_UNROLL
      for (int mask = 16; mask > 0; mask >>= 1) sum += shfl_xor(sum, mask);
      store_shared_u32(query_sum_at<Plan>(group, row), bits_of(sum));
    }
  }
  KV_DEVICE static void put(int row, int d, float x, float& largest) {
    store_shared_u32(Plan::kScratchAt + (row * kPitch + d) * 4, bits_of(x));
    largest = larger(largest, absolute(x));
  }
};

// Dimension of each contraction slot of Q.
template <class Plan>
KV_DEVICE int key_order(int i) {
  return int(load_shared_u16(Plan::kOrdersAt + i * 2));
}

template <class Plan>
constexpr float kQueryUnit = Plan::kQueryParts == 2 ? 64.f : 1.f;

template <class Plan>
KV_DEVICE void make_half_fragments() {
  constexpr int kItems = Plan::kKeyDim / 16 * Plan::kColumnBlocks * 32;
  KV_NO_UNROLL
  for (int i = thread(); i < kItems; i += Plan::kThreads) {
    const int step = i / (32 * Plan::kColumnBlocks), row = i / 32 % Plan::kColumnBlocks * 8 + (i >> 2 & 7), c = i & 3;
    float high[4], low[4];
    KV_UNROLL
    for (int j = 0; j < 4; ++j) {
      const float q = QueryRows<Plan>::get(row, key_order<Plan>((step * 4 + c) * 4 + j)) * (1.f / kQueryUnit<Plan>);
      high[j] = f32_from_f16(f16_from_f32(q));
      low[j] = q - high[j];
    }
    const u32 b0 = pack_f16x2(high[0], high[1]), b1 = pack_f16x2(high[2], high[3]);
    if constexpr (Plan::kQueryParts == 2) {
      store_shared_u128(Plan::kQueriesAt + i * 16, b0, b1, pack_f16x2(low[0], low[1]), pack_f16x2(low[2], low[3]));
    } else {
      store_shared_u32(Plan::kQueriesAt + i * 8, b0);
      store_shared_u32(Plan::kQueriesAt + i * 8 + 4, b1);
    }
  }
}

template <class Plan>
KV_DEVICE void make_integer_fragments(float per_unit) {
  constexpr int kItems = Plan::kKeyDim / 32 * Plan::kColumnBlocks * 32;
  KV_NO_UNROLL
  for (int i = thread(); i < kItems; i += Plan::kThreads) {
    const int step = i / (32 * Plan::kColumnBlocks), row = i / 32 % Plan::kColumnBlocks * 8 + (i >> 2 & 7), c = i & 3;
    u32 high[2] = {}, low[2] = {};
    KV_UNROLL
    for (int j = 0; j < 8; ++j) {
      const float q = QueryRows<Plan>::get(row, key_order<Plan>((step * 4 + c) * 8 + j));
      const int n = round_to_int(q * per_unit), upper = (n + 128) >> 8;
      high[j / 4] |= u32(upper & 255) << 8 * (j % 4);
      low[j / 4] |= u32((n - upper * 256) & 255) << 8 * (j % 4);
    }
    store_shared_u128(Plan::kQueriesAt + i * 16, high[0], high[1], low[0], low[1]);
  }
}

// The sums, [group][row], in the unit of the fragments: as floats, or as integers times kSumFactor.
template <class Plan>
KV_DEVICE void scale_sums([[maybe_unused]] float per_unit) {
  constexpr int kRows = Plan::kColumnBlocks * 8;
  KV_NO_UNROLL
  for (int i = thread(); i < Plan::kSumGroups * kRows; i += Plan::kThreads) {
    const SharedAddress at = query_sum_at<Plan>(i / kRows, i % kRows);
    const float sum = i % kRows < Plan::kRows ? float_of(load_shared_u32(at)) : 0.f;
    store_shared_u32(at, Plan::kHasIntegerKeys ? u32(round_to_int(sum * (per_unit * Plan::kSumFactor)))
                                               : bits_of(sum * (1.f / kQueryUnit<Plan>)));
  }
}
template <class Plan>
KV_DEVICE u32 query_sum(int group, int row) {
  return load_staged_u32(query_sum_at<Plan>(group, row));
}

// The lane's B fragments of Q: held in registers where there is room, else read again for every 16 tokens.
template <class Plan>
struct Queries {
  using Table = IntegerTable<typename Plan::KeyCodes>;
  Table table;  // of K, if that is integers: beside Q because the same products take both
  static constexpr int kFragments = Plan::kKeyDim / (Plan::kHasIntegerKeys ? 32 : 16) * Plan::kColumnBlocks,
                       kWords = Plan::kHasIntegerKeys ? 4 : 2 * Plan::kQueryParts;
  u32 held[Plan::kHoldQueries ? kFragments : 1][kWords];

  KV_DEVICE static void read(int fragment, u32 (&q)[kWords]) {
    if constexpr (kWords == 4)
      load_staged_u128(q, Plan::kQueriesAt + (fragment * 32 + lane()) * 16);
    else
      load_staged_u64(q, Plan::kQueriesAt + (fragment * 32 + lane()) * 8);
  }
  KV_DEVICE void hold() {
    table.load(Plan::kIntegerTableAt);
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

// From the rows in shared memory to fragments; two barriers of the block. Returns the unit of the fragments.
template <class Plan>
KV_DEVICE float make_fragments() {
  sync_block();  // all rows are there
  float unit = kQueryUnit<Plan>, per_unit = 0.f;
  if constexpr (Plan::kHasIntegerKeys) {
    const float largest = QueryRows<Plan>::largest();
    unit = largest * (1.f / kLargestQuery), per_unit = kLargestQuery / largest;
    make_integer_fragments<Plan>(per_unit);
  } else {
    make_half_fragments<Plan>();
  }
  scale_sums<Plan>(per_unit);
  sync_block();
  return unit;
}

}  // namespace kv
