// decode, of more query rows than the registers of one warp hold sums for: a team of kTeam warps takes kTeam tiles together.
//
//   1  each warp scores and softens its own tile for all columns
//   2  its probabilities go to shared memory, where the whole team reads them
//   3  each warp adds its share of the output over the tiles of all: some of V's dimensions, or some of the columns
//
// So every code of K is decoded once, and of V too where dimensions are shared. The base of the softmax is the team's. Two barriers of
// the team a round: the vote on the base, after which the tiles before are done with, and the one that shows the probabilities.
// SPDX-License-Identifier: MIT
#pragma once
#include "core/queries.cuh"
#include "core/stage.cuh"
#include "kernels/decode_keys.cuh"
#include "kernels/decode_softmax.cuh"
#include "kernels/decode_values.cuh"

namespace kv {

// A base for each of the lane's columns in shared memory, for warps that are short of registers: base[block][i] like an array's. Lanes
// that have the same columns write the same.
template <class Plan>
struct SharedBases {
  struct Base {
    SharedAddress at;
    KV_DEVICE operator float() const { return float_of(load_shared_u32(at)); }
    KV_DEVICE void operator=(float v) const { store_shared_u32(at, bits_of(v)); }
    KV_DEVICE void operator+=(float v) const {  // by all lanes of the warp
      const float before = *this;
      sync_warp();  // every lane has read it
      *this = before + v;
    }
  };
  struct Block {
    SharedAddress at;
    KV_DEVICE Base operator[](int i) const { return {at + i * 4}; }
  };
  KV_DEVICE Block operator[](int n) const {
    return {Plan::kBasesAt + (warp() * Plan::kColumnBlocks + n) * 32 + (lane() & 3) * 8};
  }
};
template <class Plan>
struct BasesOf<Plan, true> {
  using Type = SharedBases<Plan>;
};

// The largest x of each column of a team, by way of shared memory.
template <class Plan>
struct Tops<Plan, true> {
  static constexpr int kBytes = 32 * Plan::kColumnBlocks;  // of a warp

  KV_DEVICE static SharedAddress place(int warp, int i) {
    return Plan::kTopsAt + warp * kBytes + i / 2 * 32 + (lane() & 3) * 8 + i % 2 * 4;
  }
  KV_DEVICE static void show(const Scores<Plan> (&x)[Plan::kSubtiles]) {
    KV_UNROLL
    for (int i = 0; i < 2 * Plan::kColumnBlocks; ++i) {
      const float top = column_top<Plan>(x, i);
      if (lane() < 4) store_shared_u32(place(warp(), i), bits_of(top));
    }
    sync_team<Plan::kTeam>();  // the tops of the whole team are there
  }
  KV_DEVICE static float top(const Scores<Plan> (&)[Plan::kSubtiles], int i) {
    float top = kMasked;
    KV_UNROLL
    for (int member = 0; member < Plan::kTeam; ++member)
      top = larger(top, float_of(load_shared_u32(place(warp() / Plan::kTeam * Plan::kTeam + member, i))));
    return top;
  }
};

// Probabilities of a tile in shared memory: [subtile][block of columns][half] of 8 x 8 halves, a row of them a token.
template <class Plan>
struct TeamProbabilities {
  static constexpr int kMatrix = 128, kBytes = Plan::kSubtiles * Plan::kColumnBlocks * 2 * kMatrix;

  KV_DEVICE static SharedAddress of_warp(int warp) { return Plan::kProbabilitiesAt + warp * kBytes; }
  KV_DEVICE static void store(const u32 (&p)[Plan::kSubtiles][Plan::kColumnBlocks][2]) {
    KV_UNROLL
    for (int i = 0; i < Plan::kSubtiles * Plan::kColumnBlocks * 2; ++i)
      store_shared_u32(of_warp(warp()) + i * kMatrix + lane() * 4,
                       p[i / (2 * Plan::kColumnBlocks)][i / 2 % Plan::kColumnBlocks][i % 2]);
  }
  // B fragments of the lane's columns, two blocks of them at a time.
  KV_DEVICE static void load(u32 (&p)[Plan::kSubtiles][Plan::kOwnBlocks][2], int warp) {
    static_assert(Plan::kOwnBlocks % 2 == 0, "two blocks of columns are loaded together");
    KV_UNROLL
    for (int i = 0; i < Plan::kSubtiles * Plan::kOwnBlocks; i += 2) {
      const int sub = i / Plan::kOwnBlocks, n = i % Plan::kOwnBlocks;
      u32 b[4];
      load_matrices_transposed(
          b, of_warp(warp) + (sub * Plan::kColumnBlocks + Share<Plan>::first_block() + n) * 2 * kMatrix + lane() * 16);
      KV_UNROLL
      for (int j = 0; j < 4; ++j) p[sub][n + j / 2][j % 2] = b[j];
    }
  }
};

// V's scales of the lane's tokens g and g + 8 of the warp's own tile, where each token has one: they join the probabilities before the team
// sees those, relative to the team's ValueScales::log2.
template <class Plan>
struct TokenScales {
  u32 half[Plan::kSubtiles][2];

  KV_DEVICE void load(SharedAddress stage, const u8* first_row, i64 stride, bool exists) {
    const int g = lane() >> 2;
    const u32 skew = row_skew<typename Plan::V>(first_row, stride, g);
    for_each(typename Plan::V::Sections{}, [&](auto section) {
      using S = decltype(section);
      KV_UNROLL
      for (int i = 0; i < Plan::kSubtiles * 2; ++i) {
        const u32 bits = S::scale_half(scales_of<typename Plan::V, S>(stage, skew, i * 8 + g, 0, 0), 0);
        half[i / 2][i % 2] = exists ? bits : 0;
      }
    });
  }
  KV_DEVICE bool fit(int log2) const {
    bool all = true;
    KV_UNROLL
    for (int i = 0; i < Plan::kSubtiles * 2; ++i) all &= (half[i / 2][i % 2] & 0x7fffu) <= half_power(log2);
    return all;
  }
  // Of the whole team.
  KV_DEVICE u32 largest() const {
    u32 most = 0;
    KV_UNROLL
    for (int i = 0; i < Plan::kSubtiles * 2; ++i) most = larger_bits(most, half[i / 2][i % 2] & 0x7fffu);
    KV_UNROLL
    for (int mask = 4; mask < 32; mask <<= 1) most = larger_bits(most, shfl_xor(most, mask));
    const SharedAddress at = Plan::kTopsAt + Plan::kWarps * Plan::kColumnBlocks * 32;
    if (lane() == 0) store_shared_u32(at + warp() * 4, most);
    sync_team<Plan::kTeam>();  // the largest of the whole team are there
    KV_NO_UNROLL
    for (int member = 0; member < Plan::kTeam; ++member)
      most = larger_bits(most, load_shared_u32(at + (warp() / Plan::kTeam * Plan::kTeam + member) * 4));
    return most;
  }
  KV_DEVICE void apply(u32 (&p)[Plan::kSubtiles][Plan::kColumnBlocks][2], int log2) const {
    KV_UNROLL
    for (int i = 0; i < Plan::kSubtiles * 2; ++i) {
      const u32 relative = mul_f16x2(half[i / 2][i % 2] * 0x10001u, half_power(-log2) * 0x10001u);
      KV_UNROLL
      for (int n = 0; n < Plan::kColumnBlocks; ++n) p[i / 2][n][i % 2] = mul_f16x2(p[i / 2][n][i % 2], relative);
    }
  }

 private:
  KV_DEVICE static u32 larger_bits(u32 a, u32 b) { return a > b ? a : b; }
};

// The products of a team by its warps, each for itself.
template <class Plan>
struct WarpProducts {
  KV_DEVICE static void publish() {}
  KV_DEVICE static void score(Scores<Plan> (&x)[Plan::kSubtiles], SharedAddress stage,
                              const u32 (&skew)[Plan::kSubtiles][2], const Queries<Plan>& queries, Table table,
                              float scale, const Softmax<Plan>& softmax) {
    kv::score<Plan>(x, stage, 0, skew, queries, table, scale, softmax);
  }
  // The warp's share of the output, over the tile that a warp of the team has scored.
  template <class Section>
  KV_DEVICE static void accumulate(Sums<Plan>& sums, SharedAddress stage, const u32 (&skew)[Plan::kSubtiles][4],
                                   int owner, Table table) {
    u32 p[Plan::kSubtiles][Plan::kOwnBlocks][2];
    TeamProbabilities<Plan>::load(p, owner);
    accumulate_section<Plan, Section>(sums.o, sums.value_scales, p, stage, 0, skew, table);
  }
  KV_DEVICE static void finish(Sums<Plan>&) {}
};

// The tiles of a part that a warp's team takes, from the warp's own first one on.
template <class Plan>
struct TeamTiles {
  using K = typename Plan::K;
  using V = typename Plan::V;
  using Products = typename Plan::Products;
  static constexpr int kTile = Plan::kTile;
  static constexpr bool kFitsAhead = Plan::kByWarpgroups && V::kScalesGroups && !Plan::kScalesProbabilities;
  static_assert(kTile == 16 * Plan::kSubtiles, "a tile is scored at once");
  int tile, last, length;
  const u8* k_first_row;  // of the pair
  i64 k_stride;
  const u8* v_first_row;
  i64 v_stride;

  // stage(tile, to) asks for the copies of a tile.
  template <class Features, class Stage>
  KV_DEVICE void attend(Sums<Plan>& sums, const Queries<Plan>& queries, const Features& features, float scale,
                        const Stage& stage) {
    int slot = 0, next = Plan::kStages - 1;  // of the ring
    KV_NO_UNROLL
    for (; first_of_team() < last; tile += Plan::kWarps) {
      copy_wait<Plan::kStages - 2>();
      sync_warp();  // every lane's copies of the warp's tile have landed
      Scores<Plan> x[Plan::kSubtiles];
      TokenScales<Plan> scales;
      bool needs_renewal = score_own(x, sums, queries, features, scale, slot);
      if constexpr (Plan::kScalesProbabilities) {
        scales.load(staged(slot, warp()) + K::kStageBytes, v_first_row, v_stride, tile < last);
        needs_renewal |= !scales.fit(sums.value_scales.log2);
      }
      needs_renewal = any_of_team<Plan::kTeam>(needs_renewal);  // and by now the team is done with the tiles before
      stage(tile + (Plan::kStages - 1) * Plan::kWarps, staged(next, warp()));
      next = next + 1 == Plan::kStages ? 0 : next + 1;
      if (needs_renewal) {
        renew_base<Plan>(x, sums.softmax, sums.o);
        if constexpr (Plan::kScalesProbabilities) sums.value_scales.renew(sums.o, scales.largest());
      }
      u32 p[Plan::kSubtiles][Plan::kColumnBlocks][2];
      exponentiate<Plan>(p, x, sums.softmax);
      if constexpr (Plan::kScalesProbabilities) scales.apply(p, sums.value_scales.log2);
      TeamProbabilities<Plan>::store(p);
      Products::publish();
      sync_team<Plan::kTeam>();  // probabilities, and copies of V, of the whole team are there
      if constexpr (kFitsAhead) fit_scales(sums, slot);
      KV_UNROLL_BY(Plan::kColumnBlocks > 4 ? 2 : 4)
      for (int other = 0; other < Plan::kTeam; ++other) accumulate(sums, other, slot);
      Products::finish(sums);
      slot = slot + 1 == Plan::kStages ? 0 : slot + 1;
    }
  }

 private:
  KV_DEVICE int first_of_team() const { return tile - Share<Plan>::member(); }
  KV_DEVICE static SharedAddress staged(int slot, int warp) {
    return Plan::kRingAt + (slot * Plan::kWarps + warp) * Plan::kStageBytes;
  }

  // Behind the part's end there is nothing, and nobody looks; but products of a team need all its warps.
  template <class Features>
  KV_DEVICE bool score_own(Scores<Plan> (&x)[Plan::kSubtiles], const Sums<Plan>& sums, const Queries<Plan>& queries,
                           const Features& features, float scale, int slot) const {
    const int g = lane() >> 2, token = tile * kTile;
    u32 skew[Plan::kSubtiles][2];
    KV_UNROLL
    for (int i = 0; i < Plan::kSubtiles * 2; ++i) skew[i / 2][i % 2] = row_skew<K>(k_first_row, k_stride, g);
    typename Features::Loaded loaded;
    features.load(loaded, token);
    Products::score(x, staged(slot, warp()), skew, queries, table_of_lane<K::kTableCopies>(), scale, sums.softmax);
    const int end = tile < last ? length : 0;
    features.apply(x, loaded, token, sums.softmax);
    if (token + kTile > end || features.cuts(token, token + kTile - 1)) mask_scores<Plan>(x, features, token, end);
    return largest_bits<Plan>(x) >= sums.softmax.renews_at;
  }

  // V of the tile that a warp of the team has scored.
  struct Values {
    int owner;
    SharedAddress stage;
    u32 skew[Plan::kSubtiles][4];
  };
  KV_DEVICE Values values_of(int other, int slot) const {
    const int owner = warp() / Plan::kTeam * Plan::kTeam + other;
    Values values{owner, staged(slot, owner) + K::kStageBytes, {}};
    KV_UNROLL
    for (int i = 0; i < Plan::kSubtiles * 4; ++i)
      values.skew[i / 4][i % 4] = row_skew<V>(v_first_row, v_stride, 2 * (lane() & 3) + i % 2);
    return values;
  }

  // Products that run on by themselves want their sums left alone between the tiles, so the scales of all are seen first.
  KV_DEVICE void fit_scales(Sums<Plan>& sums, int slot) const {
    ValueScales<Plan>& scales = sums.value_scales;
    u32 most = 0;
    KV_NO_UNROLL
    for (int other = 0; other < Plan::kTeam; ++other) {
      const Values values = values_of(other, slot);
      scales.load(values.stage, 0, values.skew, table_of_lane<V::kTableCopies>());
      const u32 largest = scales.largest();
      most = largest > most ? largest : most;
    }
    if (any(most > half_power(scales.log2))) scales.renew_for_warp(sums.o, most);
  }

  KV_DEVICE void accumulate(Sums<Plan>& sums, int other, int slot) const {
    const Values values = values_of(other, slot);
    const Table table = table_of_lane<V::kTableCopies>();
    if constexpr (V::kScalesGroups && !Plan::kScalesProbabilities) {
      sums.value_scales.load(values.stage, 0, values.skew, table);
      if constexpr (!kFitsAhead)
        if (any(!sums.value_scales.fit())) sums.value_scales.renew(sums.o);
    }
    for_each(typename V::Sections{}, [&](auto section) {
      Products::template accumulate<decltype(section)>(sums, values.stage, values.skew, values.owner, table);
    });
  }
};

}  // namespace kv
