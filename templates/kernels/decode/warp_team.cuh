// Warp teams: decode of more query rows than the registers of one warp hold sums for. A team of kTeam warps takes kTeam
// tiles together, in rounds:
//
//   1  each warp scores its own tile and applies the online softmax, for all columns (query rows)
//   2  its probabilities go to shared memory, where the whole team reads them
//   3  each warp sums its slice of the output over the tiles of the whole team: some dimensions of V, or some columns
//
// So every code of K is decoded once, and every code of V too where warps divide V's dimensions. The team has one
// reference maximum. A round has two team barriers. The first is the vote on a rescale: behind it the team is done with
// the tiles of the round before. The second publishes the probabilities. With two buffers of probabilities the vote
// alone is enough.
// SPDX-License-Identifier: MIT
#pragma once
#include "kernels/decode/query_fragments.cuh"
#include "kernels/decode/stage_tile.cuh"
#include "kernels/decode/scores.cuh"
#include "kernels/decode/softmax.cuh"
#include "kernels/decode/values.cuh"

namespace kv {

// Reference maxima of the lane's columns in shared memory, for warps that are short of registers.
// reference_max[block][i] reads and writes them like an array. Lanes with the same columns write the same value.
template <class Plan>
struct SharedReferenceMax {
  struct ReferenceMax {
    SharedAddress at;
    KV_DEVICE operator float() const { return float_of(load_shared_u32(at)); }
    KV_DEVICE void operator=(float v) const { store_shared_u32(at, bits_of(v)); }
    KV_DEVICE void operator+=(float v) const {  // called by all lanes of the warp
      const float before = *this;
      sync_warp();  // every lane has read the old value
      *this = before + v;
    }
  };
  struct Block {
    SharedAddress at;
    KV_DEVICE ReferenceMax operator[](int i) const { return {at + i * 4}; }
  };
  KV_DEVICE Block operator[](int n) const {
    return {Plan::kReferenceMaxAt + (warp() * Plan::kColumnBlocks + n) * 32 + (lane() & 3) * 8};
  }
};
template <class Plan>
struct ReferenceMaxOf<Plan, true> {
  using Type = SharedReferenceMax<Plan>;
};

// row_max of each column over the tiles of a team, exchanged through shared memory.
template <class Plan>
struct TeamRowMax<Plan, true> {
  static constexpr int kBytes = 32 * Plan::kColumnBlocks;  // bytes of one warp's maxima

  KV_DEVICE static SharedAddress place(int warp, int i) {
    return Plan::kRowMaxAt + warp * kBytes + i / 2 * 32 + (lane() & 3) * 8 + i % 2 * 4;
  }
  KV_DEVICE static void show(const Scores<Plan> (&x)[Plan::kSubtiles]) {
    KV_UNROLL
    for (int i = 0; i < 2 * Plan::kColumnBlocks; ++i) {
      const float row_max = column_max<Plan>(x, i);
      if (lane() < 4) store_shared_u32(place(warp(), i), bits_of(row_max));
    }
    sync_team<Plan::kTeam>();  // the maxima of the whole team are stored
  }
  KV_DEVICE static float row_max(const Scores<Plan> (&)[Plan::kSubtiles], int i) {
    float row_max = kMasked;
    KV_UNROLL
    for (int member = 0; member < Plan::kTeam; ++member)
      row_max = larger(row_max, float_of(load_shared_u32(place(warp() / Plan::kTeam * Plan::kTeam + member, i))));
    return row_max;
  }
};

// Probabilities of a tile in shared memory: [subtile][block of 8 columns][half] of 8 x 8 halves, a row of which is a
// token.
template <class Plan>
struct TeamProbabilities {
  static constexpr int kMatrix = 128, kBytes = Plan::kSubtiles * Plan::kColumnBlocks * 2 * kMatrix;

  KV_DEVICE static SharedAddress of_warp(int warp) { return Plan::kProbabilitiesAt + warp * kBytes; }
  KV_DEVICE static void store(const u32 (&p)[Plan::kSubtiles][Plan::kColumnBlocks][2], SharedAddress shown) {
    KV_UNROLL
    for (int i = 0; i < Plan::kSubtiles * Plan::kColumnBlocks * 2; ++i)
      store_shared_u32(of_warp(warp()) + shown + i * kMatrix + lane() * 4,
                       p[i / (2 * Plan::kColumnBlocks)][i / 2 % Plan::kColumnBlocks][i % 2]);
  }
  // B fragments of P^T for the warp's own columns, two blocks of columns at a time.
  KV_DEVICE static void load(u32 (&p)[Plan::kSubtiles][Plan::kOwnBlocks][2], SharedAddress of_warp) {
    static_assert(Plan::kOwnBlocks % 2 == 0, "two blocks of columns are loaded together");
    KV_UNROLL
    for (int i = 0; i < Plan::kSubtiles * Plan::kOwnBlocks; i += 2) {
      const int sub = i / Plan::kOwnBlocks, n = i % Plan::kOwnBlocks;
      u32 b[4];
      load_matrices_transposed(
          b, of_warp + (sub * Plan::kColumnBlocks + TeamWarp<Plan>::first_block() + n) * 2 * kMatrix + lane() * 16);
      KV_UNROLL
      for (int j = 0; j < 4; ++j) p[sub][n + j / 2][j % 2] = b[j];
    }
  }
};

// The largest number among all lanes of a team. Has a team barrier.
template <class Plan>
KV_DEVICE u32 largest_of_team(u32 most) {
  most = largest_of_warp(most);
  const SharedAddress at = Plan::kRowMaxAt + Plan::kWarps * Plan::kColumnBlocks * 32;
  if (lane() == 0) store_shared_u32(at + warp() * 4, most);
  sync_team<Plan::kTeam>();  // the largest of every warp of the team are stored
  KV_NO_UNROLL
  for (int member = 0; member < Plan::kTeam; ++member)
    most = larger(most, load_shared_u32(at + (warp() / Plan::kTeam * Plan::kTeam + member) * 4));
  return most;
}

// V's scales of the warp's own tile, where each token has one. They multiply the probabilities before the team sees
// them, relative to the team's ValueScales::log2.
template <class Plan>
struct TokenScales {
  u32 halves[Plan::kSubtiles];  // scales of the lane's tokens g and g + 8, as halves

  KV_DEVICE void load(SharedAddress stage, const u8* first_row, i64 stride) {
    const int g = lane() >> 2;
    u32 misalignment[1][2];
    key_misalignments<typename Plan::V>(misalignment, first_row, stride);
    for_each(typename Plan::V::Sections{}, [&](auto section) {
      using S = decltype(section);
      const auto half = [&](int token, int upper) {
        return S::scale_half(scales_of<typename Plan::V, S>(stage, misalignment[0][upper], token + 8 * upper + g, 0, 0),
                             0);
      };
      KV_UNROLL
      for (int i = 0; i < Plan::kSubtiles; ++i) halves[i] = half(i * 16, 0) | half(i * 16, 1) << 16;
    });
  }
  // As in ValueScales.
  KV_DEVICE void keep(int sub, const u32 (&tokens)[2]) {
    const int at = lane() & ~3;
    halves[sub] &= (tokens[0] >> at & 0xfu ? 0xffffu : 0u) | (tokens[1] >> at & 0xfu ? 0xffff0000u : 0u);
  }
  KV_DEVICE bool are_numbers() const { return no_numbers_of(largest_of_two()) == 0; }
  KV_DEVICE void no_numbers(int sub, u32 (&tokens)[2]) const {
    const u32 both = no_numbers_of(halves[sub]);
    tokens[0] = ballot((both & 0x8000u) != 0), tokens[1] = ballot((both & 0x80000000u) != 0);
  }
  KV_DEVICE bool fit(const ValueScales<Plan>& reference) const {  // as ValueScales
    return (~(reference.limit - largest_of_two()) & 0x80008000u) == 0;
  }
  // Raises the reference scale to the largest magnitude among the scales of the whole team. Has a team barrier.
  KV_DEVICE void raise(Sums<Plan>& sums) const {
    const u32 two = largest_of_two() & 0x7fff7fffu;
    sums.value_scales.raise(sums.o, largest_of_team<Plan>(larger(two & 0xffffu, two >> 16)));
  }
  // Multiplies probabilities by the scales.
  KV_DEVICE void apply(u32 (&p)[Plan::kSubtiles][Plan::kColumnBlocks][2], const ValueScales<Plan>& reference) const {
    KV_UNROLL
    for (int i = 0; i < Plan::kSubtiles * 2; ++i) {
      const u32 relative = permute(mul_f16x2(halves[i / 2], reference.inverse), 0, i % 2 ? 0x3232 : 0x1010);
      KV_UNROLL
      for (int n = 0; n < Plan::kColumnBlocks; ++n) p[i / 2][n][i % 2] = mul_f16x2(p[i / 2][n][i % 2], relative);
    }
  }

 private:
  KV_DEVICE u32 largest_of_two() const {
    u32 most = halves[0] & 0x7fff7fffu;
    KV_UNROLL
    for (int i = 1; i < Plan::kSubtiles; ++i) most = larger_f16x2(most, halves[i]);
    return most;
  }
};

// Products of a team whose warps each multiply for themselves (mma.sync).
template <class Plan>
struct WarpProducts {
  struct Places {};
  KV_DEVICE static void publish() {}
  KV_DEVICE static void store(const u32 (&p)[Plan::kSubtiles][Plan::kColumnBlocks][2], const Places&,
                              SharedAddress shown) {
    TeamProbabilities<Plan>::store(p, shown);
  }
  KV_DEVICE static void score(Scores<Plan> (&x)[Plan::kSubtiles], SharedAddress stage,
                              const u32 (&misalignment)[Plan::kSubtiles][2], const Queries<Plan>& queries, Table table,
                              float scale, const Softmax<Plan>& softmax, TokenScales<Plan>&, const Places&) {
    kv::score<Plan>(x, stage, 0, misalignment, queries, table, scale, softmax);
  }
  // Adds to the warp's slice of the output over a tile that any warp of the team has scored.
  template <class Section>
  KV_DEVICE static void accumulate(Sums<Plan>& sums, SharedAddress stage, const u32 (&misalignment)[Plan::kSubtiles][4],
                                   SharedAddress probabilities, Table table) {
    u32 p[Plan::kSubtiles][Plan::kOwnBlocks][2];
    TeamProbabilities<Plan>::load(p, probabilities);
    accumulate_section<Plan, Section>(sums.o, sums.value_scales, p, stage, 0, misalignment, table);
  }
  KV_DEVICE static void finish(Sums<Plan>&) {}
};

// The tiles of a KV split that a warp takes, in rounds of its team, from the warp's first tile on.
template <class Plan>
struct TeamTiles {
  using K = typename Plan::K;
  using V = typename Plan::V;
  using Products = typename Plan::Products;
  static constexpr int kTile = Plan::kTile;
  // Whether each warp looks at the scales of its own tile, for the whole team; else each looks at those of all tiles.
  static constexpr bool kScalesOwn = Plan::kScalesProbabilities || IsWide<V>,
                        kFitsAhead = Plan::kByWarpgroups && V::kScalesGroups && !kScalesOwn;
  static_assert(kTile == 16 * Plan::kSubtiles, "a tile is scored at once");
  static constexpr SharedAddress kRingStride = Plan::kWarps * Plan::kStageBytes,
                                 kLastStageAt = (Plan::kStages - 1) * kRingStride;
  int tile,               // the warp's own tile of this round
      last,               // the tile behind the split's last one
      length;             // tokens of the sequence
  const u8* k_first_row;  // the batch-head's first row
  i64 k_stride;           // bytes from row to row
  const u8* v_first_row;
  i64 v_stride;

  // Attends to all tiles. stage(tile, to) issues the copies of a tile.
  template <class Features, class Stage>
  KV_DEVICE void attend(Sums<Plan>& sums, const Queries<Plan>& queries, const Features& features, float scale,
                        const Stage& stage) {
    const typename Products::Places places;
    const SharedAddress mine = hide_from_optimizer(Plan::kRingAt + warp() * Plan::kStageBytes);
    SharedAddress stage_at = 0, next = kLastStageAt;  // bytes to the stage of this round, and to the one being filled
    SharedAddress shown = 0;                          // bytes to the present buffer of probabilities
    KV_NO_UNROLL
    for (; first_of_team() < last; tile += Plan::kWarps) {
      copy_wait<Plan::kStages - 2>();
      sync_warp();  // every lane's copies of the warp's tile have landed
      Scores<Plan> x[Plan::kSubtiles];
      TokenScales<Plan> scales;
      bool needs_rescale = score_own(x, scales, sums, queries, features, scale, mine + stage_at, places);
      if constexpr (kScalesOwn) {
        if constexpr (!Plan::kScalesAreMatrices) scales.load(mine + stage_at + K::kStageBytes, v_first_row, v_stride);
        needs_rescale |= !scales.fit(sums.value_scales);
      }
      // With two buffers the probabilities are stored before the vote, and again after a rescale.
      const Softmax<Plan> before = sums.softmax;
      if constexpr (kShowsAhead) show(x, sums, scales, places, shown);
      needs_rescale = any_of_team<Plan::kTeam>(needs_rescale);  // now the team is done with the round before
      stage(tile + (Plan::kStages - 1) * Plan::kWarps, mine + next);
      next = stage_at;
      if (needs_rescale) {
        if constexpr (kShowsAhead) sums.softmax = before;
        if constexpr (Features::kMayHide && hiding_of<Plan>() != Hiding::kFirst) {
          const int token = tile * kTile;
          hide_late<Plan>(x, features, token);
          if (any(!scales.fit(sums.value_scales)) &&
              any(features.cuts(token, token + kTile - 1) | hides_by_score<Plan, Features>(x))) {
            if constexpr (hiding_of<Plan>() == Hiding::kByScales) {
              hide_scales<Plan>(x, scales);
            } else {
              hide(x, mine + stage_at);
              scales.load(mine + stage_at + K::kStageBytes, v_first_row, v_stride);
            }
          }
        }
        rescale<Plan>(x, sums.softmax, sums.o);
        if constexpr (kScalesOwn) scales.raise(sums);
      }
      if (!kShowsAhead || needs_rescale) {
        show(x, sums, scales, places, shown);
        sync_team<Plan::kTeam>();  // the probabilities and the copies of V of the whole team have landed
      }
      if constexpr (kFitsAhead) fit_scales(sums, stage_at);
      if constexpr (Plan::kByMatrices) {
        Products::accumulate_all(sums.o,
                                 mine + stage_at + K::kStageBytes - TeamWarp<Plan>::member() * Plan::kStageBytes,
                                 TeamProbabilities<Plan>::of_warp(first_warp()) + shown, places);
      } else {
        KV_UNROLL_BY(Plan::kColumnBlocks > 4 ? 2 : 4)
        for (int other = 0; other < Plan::kTeam; ++other) accumulate(sums, other, stage_at, shown);
      }
      Products::finish(sums);
      stage_at = stage_at == kLastStageAt ? 0 : stage_at + kRingStride;
      if constexpr (kShowsAhead) shown = kOtherBuffer - shown;
    }
  }

 private:
  static constexpr bool kShowsAhead = Plan::kProbabilityBuffers == 2;
  static constexpr SharedAddress kOtherBuffer = Plan::kWarps * TeamProbabilities<Plan>::kBytes;

  // Stores the warp's probabilities where the team reads them.
  KV_DEVICE static void show(const Scores<Plan> (&x)[Plan::kSubtiles], Sums<Plan>& sums,
                             const TokenScales<Plan>& scales, const typename Products::Places& places,
                             SharedAddress shown) {
    u32 p[Plan::kSubtiles][Plan::kColumnBlocks][2];
    exponentiate<Plan>(p, x, sums.softmax);
    if constexpr (Plan::kScalesProbabilities) scales.apply(p, sums.value_scales);
    Products::store(p, places, shown);
    Products::publish();
  }
  KV_DEVICE int first_of_team() const { return tile - TeamWarp<Plan>::member(); }
  KV_DEVICE static int first_warp() { return warp() / Plan::kTeam * Plan::kTeam; }
  KV_DEVICE static SharedAddress staged(SharedAddress stage_at, int warp) {
    return Plan::kRingAt + stage_at + warp * Plan::kStageBytes;
  }

  // Scores of the warp's tile; returns whether a rescale is due. A tile behind the split's end is masked, but the
  // products of a team need all of its warps.
  template <class Features>
  KV_DEVICE bool score_own(Scores<Plan> (&x)[Plan::kSubtiles], TokenScales<Plan>& scales, const Sums<Plan>& sums,
                           const Queries<Plan>& queries, const Features& features, float scale, SharedAddress staged,
                           const typename Products::Places& places) const {
    const int token = tile * kTile;
    u32 misalignment[Plan::kSubtiles][2];
    key_misalignments<K>(misalignment, k_first_row, k_stride);
    typename Features::Loaded loaded;
    features.load(loaded, token);
    Products::score(x, staged, misalignment, queries, table_of_lane<K::kTableCopies>(), scale, sums.softmax, scales,
                    places);
    const int end = tile < last ? length : 0;
    features.apply(x, loaded, token, sums.softmax);
    const bool cuts = features.cuts(token, token + kTile - 1);
    if (token + kTile > end || cuts) mask_scores<Plan>(x, features, token, end);
    if constexpr (Features::kMayHide && hiding_of<Plan>() == Hiding::kFirst) {
      hide_late<Plan>(x, features, token);
      if (any(cuts | hides_by_score<Plan, Features>(x))) hide(x, staged);
    }
    return largest_bits<Plan>(x) >= sums.softmax.rescales_at;
  }

  // Hides V of the warp's tile from rows that do not see it.
  KV_DEVICE void hide(Scores<Plan> (&x)[Plan::kSubtiles], SharedAddress staged) const {
    u32 misalignment[Plan::kSubtiles][4];
    value_misalignments<V>(misalignment, v_first_row, v_stride);
    hide_values<Plan>(x, staged + K::kStageBytes, 0, misalignment, v_first_row, v_stride);
  }

  // Shared-memory addresses of V and of the probabilities of a tile that a warp of the team has scored.
  struct Values {
    SharedAddress probabilities, stage;
    u32 misalignment[Plan::kSubtiles][4];
  };
  KV_DEVICE Values values_of(int other, SharedAddress stage_at, SharedAddress shown) const {
    const int owner = first_warp() + other;
    Values values{TeamProbabilities<Plan>::of_warp(owner) + shown, staged(stage_at, owner) + K::kStageBytes, {}};
    value_misalignments<V>(values.misalignment, v_first_row, v_stride);
    return values;
  }

  // Raises the reference scale for the tiles of the whole team at once: asynchronous products (wgmma) must not have
  // their sums changed between the tiles.
  KV_DEVICE void fit_scales(Sums<Plan>& sums, SharedAddress stage_at) const {
    ValueScales<Plan>& scales = sums.value_scales;
    u32 most = 0;
    KV_NO_UNROLL
    for (int other = 0; other < Plan::kTeam; ++other) {
      const Values values = values_of(other, stage_at, 0);
      scales.load(values.stage, 0, values.misalignment, table_of_lane<V::kTableCopies>());
      const u32 largest = scales.largest();
      most = largest > most ? largest : most;
    }
    if (any(most > half_power(scales.log2))) scales.raise(sums.o, largest_of_warp(most));
  }

  KV_DEVICE void accumulate(Sums<Plan>& sums, int other, SharedAddress stage_at, SharedAddress shown) const {
    const Values values = values_of(other, stage_at, shown);
    const Table table = table_of_lane<V::kTableCopies>();
    if constexpr (IsWide<V>) {
      sums.value_scales.place(values.stage, 0, values.misalignment);
    } else if constexpr (V::kScalesGroups && !Plan::kScalesProbabilities) {
      sums.value_scales.load(values.stage, 0, values.misalignment, table);
      if constexpr (!kFitsAhead)
        if (any(!sums.value_scales.fit())) sums.value_scales.raise(sums.o);
    }
    for_each(typename V::Sections{}, [&](auto section) {
      Products::template accumulate<decltype(section)>(sums, values.stage, values.misalignment, values.probabilities,
                                                       table);
    });
  }
};

}  // namespace kv
