// Queries as B fragments of the tensor cores, in shared memory. For each KV split, a block loads its rows of Q, one row
// a warp at a time. It rotates them into K's domain where the plan fuses that, and stores each element where the
// packing of K needs it:
//
//   halves     [step of 16][block of 8 rows][lane] of kQueryTerms x (b0, b1), see below
//              by wgmma: [step of 16][block of 8 rows] of two 8 x 8 matrices, as device/wgmma_columns.cuh has them
//   integers   [step of 32][block of 8 rows][lane] of high (b0, b1) and low (b0, b1) bytes of 16-bit integers
//
// A query of f16 is exact as one fp16 term. A query of f32 (as after a rotation) is split into a high and a low term,
// exact to 2^-22, after a division by 64 that lets it be as large as 4e6. Where K's entries are rounded too, or rows
// are many, it is rounded to one term. Rounded halves and integers are in a unit that follows from the largest
// magnitude among the rows of a KV head, so scores must be multiplied by that unit.
// SPDX-License-Identifier: MIT
#pragma once
#include "args/attention.cuh"
#include "kernels/decode/unpack_int8.cuh"
#include "device/simt.cuh"
#include "kernels/decode/query_chunks.cuh"
#include "formats/rotated_domain.cuh"

namespace kv {

// 127 x 256: the largest rounded integer whose high byte is still a signed byte, after the low byte's carry.
constexpr float kLargestQuery = 32512.f;

// Rows that are quantized with one unit, and which of them the warp loads. Here: all rows, divided among all warps.
template <class Plan>
struct UnitRows {
  static constexpr int kRows = Plan::kColumnBlocks * 8, kWarps = Plan::kWarps;
  KV_DEVICE static int first() { return 0; }
  KV_DEVICE static int own_warp() { return warp(); }
};

template <class Plan>
class QueryRows {
  using Unit = UnitRows<Plan>;
  static constexpr int kPerLane = Plan::kQueryStored / 32,  // elements of a row that a lane loads
      kAll = Plan::kKeyDim / 32;                            // elements of a row that a lane has in K's domain
  static constexpr int kRows = Plan::kColumnBlocks * 8, kPerWarp = (Unit::kRows + Unit::kWarps - 1) / Unit::kWarps;
  static constexpr int kLaneBytes = Plan::kHasIntegerKeys ? 16 : 8 * Plan::kQueryTerms;  // bytes of a lane's fragment
  static constexpr int kRowPitch = Plan::kByWarpgroups ? 16 : 4 * kLaneBytes;            // bytes from row to row
  u32 raw_[kPerWarp][kPerLane];  // the bits as they are in memory, so that nothing waits for the loads yet
  u32 place_[kAll];              // bytes from the fragments' beginning to the lane's elements of row 0
  float x_[kPerWarp][kAll];      // in K's domain

 public:
  KV_DEVICE void load(const AttentionArgs& args, int sequence, const QueryChunk<Plan>& chunk) {
    KV_UNROLL
    for (int i = 0; i < kPerWarp; ++i) {
      // Rows and dimensions that do not exist are read from a place that does: a guarded load is waited for where it
      // stands.
      const int wanted_row = own_row(i),
                row = wanted_row < Plan::kRows && chunk.has(wanted_row) ? wanted_row : Unit::first();
      const i64 at = sequence * args.q.sequence_stride + chunk.query(row) * args.q.query_stride +
                     i64(chunk.query_head(row)) * args.q.head_stride;
      KV_UNROLL
      for (int e = 0; e < kPerLane; ++e) {
        const int d = e * 32 + lane();
        raw_[i][e] = Plan::load_query_bits(args.q.data, at + (d < Plan::kQueryDim ? d : 0));
      }
    }
    KV_UNROLL
    for (int e = 0; e < kAll; ++e) place_[e] = u32(Plan::key_place(e * 32 + lane()));
  }

  // Stores the fragments to shared memory, and returns the unit of the warp's rows. Has one barrier of the block, two
  // where the unit must be computed.
  KV_DEVICE float store() {
    KV_UNROLL
    for (int i = 0; i < kPerWarp; ++i) transform(i);
    float unit = Plan::kQueryTerms == 2 ? 64.f : 1.f;
    if constexpr (Plan::kScalesQueries) {
      sync_block();  // the largest magnitude of each row is stored
      unit = largest() * (1.f / kLargestQuery);
    }
    const float per_unit = div_rn(1.f, unit);
    KV_UNROLL
    for (int i = 0; i < kPerWarp; ++i) {
      const int row = own_row(i);
      if (warp_uniform(!is_own(i))) break;
      if constexpr (Plan::kSumGroups > 0) sum_groups(i, row, per_unit);
      KV_UNROLL
      for (int e = 0; e < kAll; ++e)
        put(place_[e] + row / 8 * (32 * kLaneBytes) + row % 8 * kRowPitch, x_[i][e] * per_unit);
    }
    if constexpr (Plan::kByWarpgroups) Plan::Products::publish();
    sync_block();
    return unit;
  }

 private:
  // The warp's i-th row. is_own: does the unit have that row?
  KV_DEVICE static int own_row(int i) { return Unit::first() + i * Unit::kWarps + Unit::own_warp(); }
  KV_DEVICE static bool is_own(int i) { return i * Unit::kWarps + Unit::own_warp() < Unit::kRows; }

  KV_DEVICE void transform(int i) {
    const int row = own_row(i);
    float x[kPerLane];
    [[maybe_unused]] float second[kPerLane];
    KV_UNROLL
    for (int e = 0; e < kPerLane; ++e)
      x[e] = row < Plan::kRows && e * 32 + lane() < Plan::kQueryDim ? Plan::query_of(raw_[i][e]) : 0.f;
    if constexpr (Plan::kRotatesQueries) to_rotated<typename Plan::KeyDomain>(x, second);
    float most = 0.f;
    KV_UNROLL
    for (int e = 0; e < kAll; ++e) {
      if constexpr (kAll > kPerLane)
        x_[i][e] = e < kPerLane ? x[e] : second[e - kPerLane];
      else
        x_[i][e] = x[e];
      most = larger(most, absolute(x_[i][e]));
    }
    if constexpr (Plan::kScalesQueries) {
      KV_UNROLL
      for (int mask = 16; mask > 0; mask >>= 1) most = larger(most, shfl_xor(most, mask));
      if (is_own(i) && lane() == 0) store_shared_u32(Plan::kLargestAt + row * 4, bits_of(most));
    }
  }
  KV_DEVICE static float largest() {
    float all = 1e-30f;
    KV_UNROLL
    for (int row = 0; row < Unit::kRows; row += 4) {
      u32 four[4];
      load_staged_u128(four, Plan::kLargestAt + (Unit::first() + row) * 4);
      all = larger(all,
                   larger(larger(float_of(four[0]), float_of(four[1])), larger(float_of(four[2]), float_of(four[3]))));
    }
    return all;
  }
  // Stores an element, in the unit of the fragments, to its place.
  KV_DEVICE static void put(u32 place, float q) {
    const SharedAddress at = Plan::kQueriesAt + place;
    if constexpr (Plan::kHasIntegerKeys) {
      const int n = round_to_int(q), high = (n + 128) >> 8;
      store_shared_u8(at, u32(high));
      store_shared_u8(at + 8, u32(n - high * 256));
    } else {
      const u32 high = f16_from_f32(q);
      store_shared_u16(at, high);
      if constexpr (Plan::kQueryTerms == 2) store_shared_u16(at + 8, f16_from_f32(q - f32_from_f16(high)));
    }
  }
  // Stores the sum of a row of Q over the dimensions of each group of K. The constant that a group adds to its codes, a
  // minimum or a half, is multiplied by this sum. The sum of floats is over Q as the products see it, rounded to fp16:
  // codes counted from a minimum are far from 0 and enlarge the rounding of Q, and only a minimum times the same
  // rounded Q cancels that. The sum of integers is multiplied by kSumFactor.
  KV_DEVICE void sum_groups(int i, int row, float per_unit) {
    constexpr int kRegisters = kAll / Plan::kSumGroups;  // registers of one group
    static_assert(kRegisters * Plan::kSumGroups == kAll, "groups of whole registers");
    KV_UNROLL
    for (int group = 0; group < Plan::kSumGroups; ++group) {
      float sum = 0.f;
      KV_UNROLL
      for (int e = 0; e < kRegisters; ++e) {
        const float q = x_[i][group * kRegisters + e] * per_unit;
        sum += Plan::kScalesQueries && !Plan::kHasIntegerKeys ? f32_from_f16(f16_from_f32(q)) : q;
      }
      KV_UNROLL
      for (int mask = 16; mask > 0; mask >>= 1) sum += shfl_xor(sum, mask);
      const u32 word = Plan::kHasIntegerKeys ? u32(round_to_int(sum * Plan::kSumFactor)) : bits_of(sum);
      if (lane() == 0) store_shared_u32(Plan::kSumsAt + (group * kRows + row) * 4, word);
    }
  }
};

template <class Plan>
KV_DEVICE u32 query_sum(int group, int row) {
  return load_staged_u32(Plan::kSumsAt + (group * Plan::kColumnBlocks * 8 + row) * 4);
}

// The lane's B fragments of Q: held in registers where they fit, else read from shared memory for every 16 tokens.
template <class Plan>
struct Queries {
  using Table = IntegerTable<typename Plan::KeyCodes>;
  Table table;  // K's table, if K is integers; beside Q because the same products take both
  static constexpr int kFragments = Plan::kKeyDim / (Plan::kHasIntegerKeys ? 32 : 16) * Plan::kColumnBlocks,
                       kWords = Plan::kHasIntegerKeys ? 4 : 2 * Plan::kQueryTerms;
  u32 held[Plan::kHoldQueries ? kFragments : 1][kWords];
  u32 sums[Plan::kHoldQueries ? Plan::kColumnBlocks : 1][2];  // query_sum of the lane's columns, for one group

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
      KV_UNROLL
      for (int i = 0; i < 2 * Plan::kColumnBlocks * (Plan::kSumGroups == 1); ++i) sums[i / 2][i % 2] = read_sum(0, i);
    }
  }
  KV_DEVICE static u32 read_sum(int group, int i) {
    return query_sum<Plan>(group, i / 2 * 8 + 2 * (lane() & 3) + i % 2);
  }
  // The sum of Q over a group of K, for the lane's column i % 2 of block i / 2.
  KV_DEVICE u32 sum(int group, int i) const {
    if constexpr (Plan::kHoldQueries && Plan::kSumGroups == 1)
      return sums[i / 2][i % 2];
    else
      return read_sum(group, i);
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
