// Queries as B fragments of the tensor cores, in shared memory. For each KV split, a block loads its rows of Q, one row
// a warp at a time. It rotates them into K's domain where the plan fuses that, and stores each element where the
// packing of K needs it:
//
//   halves     [step of 16][block of 8 rows][lane] of kQueryTerms x (b0, b1), see below
//              by wgmma: [step of 16][term][block of 8 rows] of two 8 x 8 matrices of device/wgmma_columns.cuh
//   bfloats    as halves, for sections of K that are multiplied as bfloats (rare/bfloat_keys.cuh)
//   integers   [step of 32][block of 8 rows][lane] of high (b0, b1) and low (b0, b1) bytes of 16-bit integers
//
// A query of f16 is exact as one fp16 term. A query of f32 (as after a rotation) is split into a high and a low term,
// exact to 2^-22. Where K's entries are rounded too, or rows are many, it is rounded to one term. Of bfloats a query of
// bf16 takes one, one of f16 two, and one of f32 three, or two where rows are many (2^-17).
//
// Split and rounded halves, and integers, are in a unit that follows from the row's own largest magnitude, so that a
// row answers for itself: its bits do not depend on the other rows of its KV head. Sums of products are multiplied by
// the unit of their column. Integers have 1 / 32512 of the largest magnitude, halves a power of two, which changes
// exponents alone: kOrdinaryUnit, or another where a row's magnitudes are too small or too large for that. Where there
// are several blocks of columns, products of halves are multiplied in a branch that ordinary rows do not take. A row
// with a NaN has NaN scores: halves keep a NaN, and integers, which cannot, have a NaN as their unit.
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
// Rows below it are rounded as if they had it: their unit and its reciprocal stay normal numbers.
constexpr float kLeastLargest = 1e-33f;

// The unit of halves in a row whose largest magnitude is at least kLeastOrdinary and below kMostOrdinary: the low term
// is then exact to 2^-22 of that magnitude, and the high term is far from 65504.
constexpr float kOrdinaryUnit = 0x1p-7f, kLeastOrdinary = 0x1p-10f, kMostOrdinary = 0x1p8f;

// What kUnitsAt has for each row: the factor from products to scores; or, where factors for all columns would cost more
// and units are rare, the unit divided by the ordinary one.
template <class Plan>
struct UnitKinds {
  static constexpr bool kHasFewFactors = Plan::kHasIntegerKeys || Plan::kColumnBlocks == 1,
                        kAreOne = Plan::kScalesQueries && Plan::kRows == 1,  // the factor of one row
      kAreFactors = Plan::kScalesQueries && Plan::kRows > 1 && kHasFewFactors,
                        kAreRare = Plan::kScalesQueries && Plan::kRows > 1 && !kHasFewFactors;
};
template <class Plan>
struct QueryUnits : UnitKinds<Plan> {
  KV_DEVICE static int first_row() { return 0; }  // of the warp's rows, among those of the block
};

template <class Plan>
class QueryRows {
  static constexpr int kPerLane = Plan::kQueryStored / 32,  // elements of a row that a lane loads
      kAll = Plan::kKeyDim / 32;                            // elements of a row that a lane has in K's domain
  static constexpr int kRows = Plan::kColumnBlocks * 8, kPerWarp = (kRows + Plan::kWarps - 1) / Plan::kWarps;
  static constexpr int kLaneBytes = Plan::kHasIntegerKeys ? 16 : 8 * Plan::kQueryTerms;  // bytes of a lane's fragment
  // Bytes from row to row, from one block of rows to the next, and from term to term.
  static constexpr int kRowPitch = Plan::kByWarpgroups ? 16 : 4 * kLaneBytes,
                       kBlockBytes = Plan::kByWarpgroups ? 256 : 32 * kLaneBytes,
                       kTermBytes = Plan::kByWarpgroups ? Plan::kColumnBlocks * kBlockBytes : 8;
  u32 raw_[kPerWarp][kPerLane];  // the bits as they are in memory, so that nothing waits for the loads yet
  u32 place_[kAll];              // bytes from the fragments' beginning to the lane's elements of row 0
  float x_[kPerWarp][kAll];      // in K's domain

 public:
  KV_DEVICE void load(const AttentionArgs& args, int sequence, const QueryChunk<Plan>& chunk) {
    KV_UNROLL
    for (int i = 0; i < kPerWarp; ++i) {
      // Rows and dimensions that do not exist are read from a place that does: a guarded load is waited for where it
      // stands.
      const int wanted_row = own_row(i), row = wanted_row < Plan::kRows && chunk.has(wanted_row) ? wanted_row : 0;
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

  // Stores the fragments and the units of rows to shared memory. scale: the factor from products to scores that rows
  // without units have. Has a barrier of the block.
  KV_DEVICE void store(float scale) {
    u32 largest[kPerWarp];  // bits of the largest magnitude of each row
    KV_UNROLL
    for (int i = 0; i < kPerWarp; ++i) largest[i] = transform(i);
    KV_UNROLL
    for (int i = 0; i < kPerWarp; ++i) {
      const int row = own_row(i);
      if (warp_uniform(row >= kRows)) break;
      float per_unit = 1.f;
      if constexpr (Plan::kScalesQueries) {
        const float unit = unit_of(largest[i]);
        per_unit = per_unit_of(unit);
        const float shown = QueryUnits<Plan>::kAreRare ? unit * (1.f / kOrdinaryUnit) : unit * scale;
        if (lane() == 0) store_shared_u32(Plan::kUnitsAt + row * 4, bits_of(shown));
      }
      if constexpr (Plan::kSumGroups > 0) sum_groups(i, row, per_unit);
      KV_UNROLL
      for (int e = 0; e < kAll; ++e)
        put(place_[e] + row / 8 * kBlockBytes + row % 8 * kRowPitch, Plan::is_bfloat(place_[e]), x_[i][e] * per_unit);
    }
    if constexpr (Plan::kByWarpgroups) Plan::Products::publish();
    sync_block();
  }

 private:
  KV_DEVICE static int own_row(int i) { return i * Plan::kWarps + warp(); }  // the warp's i-th row

  // Returns the bits of the row's largest magnitude, which order as magnitudes do: a NaN is above all of them.
  KV_DEVICE u32 transform(int i) {
    const int row = own_row(i);
    float x[kPerLane];
    [[maybe_unused]] float second[kPerLane];
    KV_UNROLL
    for (int e = 0; e < kPerLane; ++e)
      x[e] = row < Plan::kRows && e * 32 + lane() < Plan::kQueryDim ? Plan::query_of(raw_[i][e]) : 0.f;
    if constexpr (Plan::kRotatesQueries) to_rotated<typename Plan::KeyDomain>(x, second);
    u32 largest = 0;
    KV_UNROLL
    for (int e = 0; e < kAll; ++e) {
      if constexpr (kAll > kPerLane)
        x_[i][e] = e < kPerLane ? x[e] : second[e - kPerLane];
      else
        x_[i][e] = x[e];
      largest = larger(largest, bits_of(absolute(x_[i][e])));
    }
    return Plan::kScalesQueries ? largest_of_warp(largest) : largest;
  }

  // The unit of a row with this largest magnitude.
  KV_DEVICE static float unit_of(u32 largest) {
    constexpr u32 kInfinity = 0x7f800000u;
    if constexpr (Plan::kHasIntegerKeys)
      return largest < kInfinity ? larger(float_of(largest), kLeastLargest) * (1.f / kLargestQuery) : float_of(~0u);
    // 2^(e - 14) for a magnitude of 2^e to 2^(e + 1). Its reciprocal must be a normal number, too.
    const u32 exponent = largest >> 23, own = (exponent > 15 ? exponent : 15) - 14;
    const bool is_ordinary = largest == 0 || (largest >= bits_of(kLeastOrdinary) && largest < bits_of(kMostOrdinary));
    return is_ordinary ? kOrdinaryUnit : float_of(own << 23);
  }
  // 1 / unit; exact for a power of two.
  KV_DEVICE static float per_unit_of(float unit) {
    if constexpr (Plan::kHasIntegerKeys) return div_rn(1.f, unit);
    return float_of((254u << 23) - bits_of(unit));
  }
  // Stores an element, in the unit of the fragments, to its place.
  KV_DEVICE static void put(u32 place, bool is_bfloat, float q) {
    const SharedAddress at = Plan::kQueriesAt + place;
    if constexpr (Plan::kHasIntegerKeys) {
      const int n = round_to_int(q), high = (n + 128) >> 8;
      store_shared_u8(at, u32(high));
      store_shared_u8(at + 8, u32(n - high * 256));
    } else {
      KV_UNROLL
      for (int term = 0; term < Plan::kQueryTerms; ++term) {
        const u32 bits = is_bfloat ? bf16_from_f32(q) : f16_from_f32(q);
        store_shared_u16(at + term * kTermBytes, bits);
        q -= is_bfloat ? f32_from_bf16(bits) : f32_from_f16(bits);
      }
    }
  }
  // Stores the sum of a row of Q over the dimensions of each group of K. The constant that a group adds to its codes, a
  // minimum or a half, is multiplied by this sum. The sum of floats is over Q as the products see it, rounded to fp16:
  // codes counted from a minimum are far from 0 and enlarge the rounding of Q, and only a minimum times the same
  // rounded Q cancels that. The sum of integers is multiplied by kSumFactor.
  KV_DEVICE void sum_groups(int i, int row, float per_unit) {
    constexpr int kRegisters = kAll / Plan::kSumGroups;  // registers of one group
    constexpr bool kIsRounded = Plan::kScalesQueries && Plan::kQueryTerms == 1 && !Plan::kHasIntegerKeys;
    static_assert(kRegisters * Plan::kSumGroups == kAll, "groups of whole registers");
    KV_UNROLL
    for (int group = 0; group < Plan::kSumGroups; ++group) {
      float sum = 0.f;
      KV_UNROLL
      for (int e = 0; e < kRegisters; ++e) {
        const float q = x_[i][group * kRegisters + e] * per_unit;
        sum += kIsRounded ? f32_from_f16(f16_from_f32(q)) : q;
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

// The units of the rows as scores need them. The lane has columns 2c and 2c + 1 of each block.
template <class Plan>
struct ColumnUnits {
  using Units = QueryUnits<Plan>;
  // Registers hold factors where they hold Q, and those of one block.
  static constexpr bool kHoldsFactors = Units::kAreFactors && (Plan::kHoldQueries || Plan::kColumnBlocks == 1);
  float factors[kHoldsFactors ? Plan::kColumnBlocks : 1][2];
  u32 are_some_rare;  // 1, if a row has another unit than the ordinary one; the same in all lanes

  // Takes the factor from products to scores that rows without units have. Returns the one that all rows have, if they
  // have one.
  KV_DEVICE float hold(float scale) {
    if constexpr (kHoldsFactors) {
      KV_UNROLL
      for (int n = 0; n < Plan::kColumnBlocks; ++n) load(factors[n], n);
    }
    if constexpr (Units::kAreOne) return float_of(load_staged_u32(Plan::kUnitsAt + Units::first_row() * 4));
    if constexpr (!Units::kAreRare) return scale;
    bool is_rare = false;
    KV_UNROLL
    for (int row = 0; row < Plan::kColumnBlocks * 8; row += 32) {
      const int own = row + lane() < Plan::kColumnBlocks * 8 ? row + lane() : 0;
      is_rare |= load_staged_u32(Plan::kUnitsAt + (Units::first_row() + own) * 4) != bits_of(1.f);
    }
    are_some_rare = any(is_rare);
    return scale * kOrdinaryUnit;
  }
  // The factors from products to scores of block n. scale: what hold() has returned.
  KV_DEVICE void get(float (&factor)[2], int n, float scale) const {
    if constexpr (!Units::kAreFactors)
      factor[0] = factor[1] = scale;
    else if constexpr (kHoldsFactors)
      factor[0] = factors[n][0], factor[1] = factors[n][1];
    else
      load(factor, n);
  }
  // Calls multiply(n, unit) for each block n, where some unit is rare. unit: of the lane's columns.
  template <class Multiply>
  KV_DEVICE void apply_rare(const Multiply& multiply) const {
    if constexpr (Units::kAreRare) {
      if (!warp_uniform(are_some_rare != 0)) return;
      KV_UNROLL
      for (int n = 0; n < Plan::kColumnBlocks; ++n) {
        float unit[2];
        load(unit, n);
        multiply(n, unit);
      }
    }
  }

 private:
  KV_DEVICE static void load(float (&unit)[2], int n) {
    u32 words[2];
    load_staged_u64(words, Plan::kUnitsAt + (Units::first_row() + n * 8 + 2 * (lane() & 3)) * 4);
    unit[0] = float_of(words[0]), unit[1] = float_of(words[1]);
  }
};

// The lane's B fragments of Q: held in registers where they fit, else read from shared memory for every 16 tokens.
template <class Plan>
struct Queries {
  using Table = IntegerTable<typename Plan::KeyCodes>;
  Table table;  // K's table, if K is integers; beside Q because the same products take both
  static constexpr int kFragments = Plan::kKeyDim / (Plan::kHasIntegerKeys ? 32 : 16) * Plan::kColumnBlocks,
                       kWords = Plan::kHasIntegerKeys ? 4 : 2 * Plan::kQueryTerms;
  u32 held[Plan::kHoldQueries ? kFragments : 1][kWords];
  u32 sums[Plan::kHoldQueries ? Plan::kColumnBlocks : 1][2];  // query_sum of the lane's columns, for one group
  ColumnUnits<Plan> units;

  KV_DEVICE static void read(int fragment, u32 (&q)[kWords]) {
    const SharedAddress at = Plan::kQueriesAt + (fragment * 32 + lane()) * (kWords * 4);
    if constexpr (kWords == 4) {
      load_staged_u128(q, at);
    } else {
      KV_UNROLL
      for (int i = 0; i < kWords; i += 2) load_staged_u64(q + i, at + i * 4);
    }
  }
  // Takes and returns what ColumnUnits::hold() does.
  KV_DEVICE float hold(float scale) {
    table.load(Plan::kIntegerTableAt);
    if constexpr (Plan::kHoldQueries) {
      KV_UNROLL
      for (int i = 0; i < kFragments; ++i) read(i, held[i]);
      KV_UNROLL
      for (int i = 0; i < 2 * Plan::kColumnBlocks * (Plan::kSumGroups == 1); ++i) sums[i / 2][i % 2] = read_sum(0, i);
    }
    return units.hold(scale);
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
