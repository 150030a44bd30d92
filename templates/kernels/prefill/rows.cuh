// Rows of prefill on their way in and out. A consumer warpgroup has kBlocks blocks of 64 query rows. Its queries are
// loaded a row a warp, rotated into K's domain if the plan fuses that, rounded to fp16, and stored as first operands in
// the order in which K's packing gives its dimensions. Its output passes through the place of the queries as floats,
// at most one block at a time, and leaves a row a warp: out of the order of V's packing, out of V's domain, to memory.
// SPDX-License-Identifier: MIT
#pragma once
#include "args/attention.cuh"
#include "device/warp_roles.cuh"
#include "formats/rotated_domain.cuh"
#include "kernels/prefill/work_tiles.cuh"

namespace kv {

constexpr int kBlockRows = 64;  // query rows of a block, which a warpgroup multiplies at once

// The element of a tensor at which a query row begins.
template <class Plan>
KV_DEVICE i64 row_start(const Rows& rows, const WorkTile& work, int row) {
  return work.sequence * rows.sequence_stride + i64(row / Plan::kGroup + work.query_shift) * rows.query_stride +
         (i64(work.head) * Plan::kGroup + row % Plan::kGroup) * rows.head_stride;
}

// lane(), hidden from the optimizer: what is computed from it here takes no registers in the loop over tiles.
KV_DEVICE int own_lane() { return int(hide_from_optimizer(u32(lane()))); }

// Query rows that a warp loads, and the first of them in its warpgroup. Consumers that share rows load half each.
template <class Plan>
constexpr int kRowsOfWarp = kBlockRows / (Plan::kSharesRows ? 8 : 4) * Plan::kBlocks;
template <class Plan>
KV_DEVICE int first_row_of_warp() {
  return (Plan::kSharesRows ? warp() - Plan::kWarps : warp() % 4) * kRowsOfWarp<Plan>;
}

// Bytes of a block of queries as an operand: whole panels of 64 dimensions.
template <class Plan>
constexpr int kQueryBlockBytes = (Plan::kKeyDim + 63) / 64 * kRowPanelBytes;

// The shared address of chunk `chunk`, eight halves, of the warpgroup's row `row`.
template <class Plan>
KV_DEVICE SharedAddress query_chunk(SharedAddress to, int row, int chunk) {
  return to + row / kBlockRows * kQueryBlockBytes<Plan> + row_operand_place(row % kBlockRows, chunk);
}
template <class Plan>
KV_DEVICE SharedAddress query_place(SharedAddress to, int row, u32 column) {
  return query_chunk<Plan>(to, row, int(column / 8)) + column % 8 * 2;
}

// Whether a row of kDim elements has the lane's element e, number e * 32 + lane.
template <int kDim>
KV_DEVICE bool has_element(int e) {
  return kDim % 32 == 0 || e * 32 + lane() < kDim;
}

// Powers of two by which query rows are divided before they are rounded to fp16. Plans whose queries may be beyond its
// range have a form in kernels/prefill/query_factors.cuh.
template <class Plan>
struct QueryFactors {
  template <int kPerLane>
  KV_DEVICE static void fit(float (&)[kPerLane], SharedAddress, int) {}
  KV_DEVICE static bool are_needed(SharedAddress, int) { return false; }
  template <int kScores>
  KV_DEVICE static void multiply(float (&)[kScores], SharedAddress, int) {}
};

// Stores kAtOnce query rows as halves, rotated if the plan fuses that. x: element e * 32 + lane of each. row: the
// first of them in the warpgroup.
template <class Plan, int kAtOnce, int kPerLane>
KV_DEVICE void store_queries(float (&x)[kAtOnce][kPerLane], const u32 (&column)[kPerLane], int row, SharedAddress to) {
  KV_UNROLL
  for (int i = 0; i < kAtOnce; ++i) {
    [[maybe_unused]] float second[kPerLane];
    if constexpr (Plan::kRotatesQueries) to_rotated<typename Plan::KeyDomain>(x[i], second);
    QueryFactors<Plan>::fit(x[i], to, row + i);
    KV_UNROLL
    for (int e = 0; e < kPerLane; ++e)
      if (has_element<Plan::kQueryStored>(e))
        store_shared_u16(query_place<Plan>(to, row + i, column[e]), pack_f16x2(x[i][e], 0.f));
  }
}

// Copies the warp's rows of 16 bits an element as they are: element d to the place of column d. All copies are under
// way together.
template <class Plan>
KV_DEVICE void copy_queries(const Rows& q, const WorkTile& work, int first, SharedAddress to) {
  constexpr int kChunks = Plan::kKeyDim / 8, kRows = kRowsOfWarp<Plan>;
  const int lane = own_lane(), begin = first_row_of_warp<Plan>();
  const u16* const data = static_cast<const u16*>(q.data);
  KV_NO_UNROLL
  for (int i = lane; i < kRows * kChunks; i += 32) {
    const int row = begin + i / kChunks, chunk = i % kChunks;
    const int elements = first + row < Plan::kAllRows ? clamp_to(Plan::kQueryDim - chunk * 8, 8) : 0;
    const u16* const from = elements > 0 ? data + row_start<Plan>(q, work, first + row) + chunk * 8 : data;
    const SharedAddress place = query_chunk<Plan>(to, row, chunk);
    if (Plan::kQueryDim % 8 == 0 && (i64)from % 16 == 0) {
      copy_async<16>(place, reinterpret_cast<const u8*>(from), 2 * elements);
    } else {
      u32 words[4] = {};
      KV_UNROLL
      for (int j = 0; j < 8; ++j)
        if (j < elements) words[j / 2] |= u32(from[j]) << 16 * (j % 2);
      store_shared_u128(place, words[0], words[1], words[2], words[3]);
    }
  }
  copy_commit();
  copy_wait<0>();
}

// Loads the warpgroup's queries to `to`. first: its first row. Rows that do not exist become zeros. Rows of 16 bits an
// element are copied, then rotated and brought to their order in place. Of rows of f32 the next are on their way while
// some are rotated and stored.
template <class Plan>
KV_DEVICE void load_queries(const Rows& q, const WorkTile& work, int first, SharedAddress to) {
  constexpr int kPerLane = (Plan::kQueryStored + 31) / 32,
                kAtOnce = Plan::kRotatesQueries ? 4 : 8;  // rows that are under way together
  const int begin = first_row_of_warp<Plan>(), end = begin + kRowsOfWarp<Plan>;
  if constexpr (Plan::kCopiesQueries) copy_queries<Plan>(q, work, first, to);
  if constexpr (Plan::kCopiesQueries && !Plan::kChangesQueries) return;
  const int lane = own_lane();
  u32 column[kPerLane];  // of each element of the lane, in a row of the operand
  KV_UNROLL
  for (int e = 0; e < kPerLane; ++e)
    column[e] = has_element<Plan::kQueryStored>(e) ? u32(Plan::key_column(e * 32 + lane)) : 0;
  // The elements of rows `at` and the next: halves that were copied, or numbers in memory.
  const auto load = [&](int at, float(&x)[kAtOnce][kPerLane]) {
    KV_UNROLL
    for (int i = 0; i < kAtOnce; ++i) {
      const int row = first + at + i;
      const bool exists = row < Plan::kAllRows;
      const i64 from = row_start<Plan>(q, work, exists ? row : Plan::kAllRows - 1);
      KV_UNROLL
      for (int e = 0; e < kPerLane; ++e) {
        const int d = e * 32 + lane;
        if constexpr (Plan::kCopiesQueries) {
          if (has_element<Plan::kQueryStored>(e))
            x[i][e] = Plan::query_of(load_staged_u16(query_place<Plan>(to, at + i, u32(d))));
        } else {
          const float value = Plan::query_of(Plan::load_query_bits(q.data, from + (d < Plan::kQueryDim ? d : 0)));
          x[i][e] = exists && d < Plan::kQueryDim ? value : 0.f;
        }
      }
    }
  };
  float x[kAtOnce][kPerLane], next[kAtOnce][kPerLane];  // next: rows that are on their way from memory
  sync_warp();                                          // copied rows are there for all lanes
  if constexpr (!Plan::kCopiesQueries) load(begin, next);
  KV_NO_UNROLL
  for (int at = begin; at < end; at += kAtOnce) {
    if constexpr (Plan::kCopiesQueries) {
      load(at, x);
      sync_warp();  // all lanes have read the rows
    } else {
      KV_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        KV_UNROLL
        for (int e = 0; e < kPerLane; ++e) x[i][e] = next[i][e];
      }
      if (at + kAtOnce < end) load(at + kAtOnce, next);
    }
    store_queries<Plan>(x, column, at, to);
  }
}

// The shared address of column `column` of a row of output. Groups of eight columns are exchanged by the row, so that
// neither the lanes that store fragments nor those that load rows meet in a bank.
template <int kColumns>
KV_DEVICE SharedAddress output_place(SharedAddress at, int row, int column) {
  return at + row * (kColumns * 4) + (column ^ (row & 7) * 8) * 4;
}

// Stores one block of output. o: its sums in the accumulator layout; factor: what the sums of the lane's rows g and
// g + 8 are multiplied by; first: the block's first row; first_dim: the dimension of the first column; place: shared
// memory that the warpgroup has left, for the block as floats or, in two passes, for half of it. A warp stores the rows
// that it has summed.
template <class Plan, int kSums>
KV_DEVICE void store_output(const Rows& out, const WorkTile& work, int first, const float (&o)[kSums],
                            const float (&factor)[2], SharedAddress place, int first_dim) {
  constexpr int kColumns = 2 * kSums, kPerLane = kColumns / 32, kPasses = Plan::kOutputPasses, kRows = 16 / kPasses,
                kAtOnce = 4;  // rows whose rotations are under way together
  const int lane = own_lane(), g = lane >> 2, c = lane & 3, top = warp() % 4 * kRows;
  KV_UNROLL
  for (int pass = 0; pass < kPasses; ++pass) {
    sync_warp();
    KV_UNROLL
    for (int i = 0; i < kSums; i += 2) {
      const int half = i / 2 % 2, column = i / 4 * 8 + 2 * c;
      if (kPasses == 2 && half != pass) continue;
      store_shared_u64(output_place<kColumns>(place, top + g + (kPasses == 2 ? 0 : 8 * half), column),
                       bits_of(o[i] * factor[half]), bits_of(o[i + 1] * factor[half]));
    }
    sync_warp();
    KV_NO_UNROLL
    for (int i = 0; i < kRows; i += kAtOnce) {
      float x[kAtOnce][kPerLane];
      KV_UNROLL
      for (int j = 0; j < kAtOnce; ++j) {
        KV_UNROLL
        for (int e = 0; e < kPerLane; ++e)
          x[j][e] = float_of(
              load_shared_u32(output_place<kColumns>(place, top + i + j, int(Plan::value_column(e * 32 + lane)))));
        [[maybe_unused]] float second[kPerLane];
        if constexpr (Plan::kRotatesOutput) from_rotated<typename Plan::ValueDomain>(x[j], second);
      }
      KV_UNROLL
      for (int j = 0; j < kAtOnce; ++j) {
        const int row = first + warp() % 4 * 16 + pass * kRows + i + j;
        const i64 to = row_start<Plan>(out, work, row);
        KV_UNROLL
        for (int e = 0; e < kPerLane; ++e)
          if (row < Plan::kAllRows && first_dim + e * 32 + lane < Plan::kOutputDim)
            Plan::store(out.data, to + first_dim + e * 32 + lane, x[j][e]);
      }
    }
  }
}

}  // namespace kv
