// Writes rows of trellis codes: finds the states whose entries are nearest to the values of a block (Viterbi's
// algorithm), and packs their stream. A warp takes the blocks of a row one after another.
//
// Value i leads from state s to state (s >> kStep) | (symbol << (kBits - kStep)), at the cost of the squared distance
// of the new state's entry. The states kJoins g .. kJoins g + kJoins - 1 lead to the same states, which are g and those
// with other symbols: all states that are g modulo the number of groups. So a step finds the cheapest state of each
// group, and adds a distance for each new state. Of equal costs the lowest state wins.
//
// The path of a tail-biting trellis is closed: the state behind the last value leads to the one behind the first. A
// first walk starts in the middle of the block with any state. Where it passes the ends of the block it has about the
// states of the best closed path, so the second walk comes from the group of states there and ends in it.
//
// A lane keeps the costs of kOwn neighbouring states in registers, and the entries of these states. Shared memory of
// the warp has the values, which the states of their path replace; the least cost of each group, twice, so that a step
// has one barrier; and for each value a byte a lane with the choices in the lane's groups.
// SPDX-License-Identifier: MIT
#pragma once
#include "formats/trellis.cuh"
#include "formats/write_row.cuh"

namespace kv {

template <class Codes, int kLength>
struct TrellisSearch {
  static constexpr int kStates = 1 << Codes::kBits, kJoins = 1 << Codes::kStep, kGroups = kStates / kJoins,
                       kOwn = kStates / 32, kOwnGroups = kOwn / kJoins;
  static_assert(kOwnGroups > 0 && kOwnGroups * Codes::kStep <= 8, "the choices of a lane are a byte");

  u32* words;    // kLength values as floats, then the states of the path
  float* least;  // of each group, for even and for odd values
  u8* choices;   // a byte for each value and lane

  KV_DEVICE void find() {
    float cost[kOwn] = {};
    if constexpr (Codes::kIsTailBiting) {
      walk(cost, kLength / 2);
      u32 state = cheapest(cost);
      KV_NO_UNROLL
      for (int i = kLength - 1; i >= kLength - kLength / 2; --i) state = before(state, i);
      sync_warp();  // the second walk writes the choices again
      const u32 group = state / kJoins;
      allow<false>(cost, group);
      walk(cost, 0);
      allow<true>(cost, group);
      state = cheapest(cost);
      trace(state / kJoins == group ? state : group * kJoins);  // costs that are no numbers have no cheapest state
    } else {
      walk(cost, 0);
      trace(cheapest(cost));
    }
  }

 private:
  // Leads from states of these costs through all values, from value `first` on. Value kLength is value 0.
  KV_DEVICE void walk(float (&cost)[kOwn], int first) {
    float entry[kOwn];
    KV_UNROLL
    for (int i = 0; i < kOwn; ++i) entry[i] = Codes::value(lane() * kOwn + i);
    KV_NO_UNROLL
    for (int t = 0; t < kLength; ++t) {
      float* const groups = least + t % 2 * kGroups;
      u32 chosen = 0;
      KV_UNROLL
      for (int g = 0; g < kOwnGroups; ++g) {
        float lowest = cost[g * kJoins];
        u32 choice = 0;
        KV_UNROLL
        for (int i = 1; i < kJoins; ++i)
          if (cost[g * kJoins + i] < lowest) lowest = cost[g * kJoins + i], choice = i;
        groups[lane() * kOwnGroups + g] = lowest, chosen |= choice << g * Codes::kStep;
      }
      choices[t * 32 + lane()] = u8(chosen);
      sync_warp();
      const float x = float_of(words[(first + t) % kLength]);
      const float* const joined = groups + lane() * kOwn % kGroups;
      KV_UNROLL
      for (int i = 0; i < kOwn; ++i) {
        const float miss = add_rn(x, -entry[i]);
        cost[i] = add_rn(joined[i], mul_rn(miss, miss));
      }
    }
    sync_warp();  // choices and values have been written and read by all lanes
  }
  // Makes the costs of all states infinite but those of a group, which are kept, or 0.
  template <bool kIsKept>
  KV_DEVICE static void allow(float (&cost)[kOwn], u32 group) {
    KV_UNROLL
    for (int i = 0; i < kOwn; ++i) {
      const float allowed = kIsKept ? cost[i] : 0.f;
      cost[i] = u32(lane() * kOwn + i) / kJoins == group ? allowed : float_of(0x7f800000u);
    }
  }
  // The state before the i-th value of a walk, which led to `state`.
  KV_DEVICE u32 before(u32 state, int i) const {
    const u32 group = state % kGroups;
    const u32 choice = choices[i * 32 + group / kOwnGroups] >> group % kOwnGroups * Codes::kStep & (kJoins - 1);
    return group * kJoins + choice;
  }
  // The lowest of the cheapest states. If costs are NaN, state 0.
  KV_DEVICE static u32 cheapest(const float (&cost)[kOwn]) {
    float lowest = cost[0];
    u32 state = lane() * kOwn;
    KV_UNROLL
    for (int i = 1; i < kOwn; ++i)
      if (cost[i] < lowest) lowest = cost[i], state = lane() * kOwn + i;
    KV_UNROLL
    for (int mask = 1; mask < 32; mask <<= 1) {
      const float other = shfl_xor(lowest, mask);
      const u32 other_state = shfl_xor(state, mask);
      const bool is_lower = lane() & mask;  // the other lane's states
      if (other < lowest || (is_lower && !(lowest < other))) lowest = other, state = other_state;
    }
    return state;
  }
  // Goes back along the path that ends in `state`. All lanes read, and one writes.
  KV_DEVICE void trace(u32 state) {
    KV_NO_UNROLL
    for (int t = kLength - 1; t >= 0; --t) {
      if (lane() == 0) words[t] = state;
      state = before(state, t);
    }
    sync_warp();
  }
};

// Packs the streams of all blocks, two bytes a lane, from the states of all values. In a circle each value adds its
// lowest kStep bits: the others are those of the values behind it.
template <class F, class Field>
KV_DEVICE void pack_streams(const u32* states, u8* to) {
  constexpr int kCode = Field::kCircle > 0 ? Field::kStep : Field::kBits;  // bits of a state
  constexpr int kUnits = (kCode + (F::kBlock - 1) * Field::kStep + 15) / 16;
  KV_NO_UNROLL
  for (int i = lane(); i < F::kStored / F::kBlock * kUnits; i += 32) {
    const int block = i / kUnits, first_bit = i % kUnits * 16;
    // The values whose states have bits of the unit.
    const int begin = first_bit < kCode ? 0 : (first_bit - kCode) / Field::kStep + 1,
              end = (first_bit + 15) / Field::kStep + 1;
    u32 bits = 0;
    KV_NO_UNROLL
    for (int value = begin; value < end && value < F::kBlock; ++value) {
      const u32 state = states[block * F::kBlock + value] & ((1u << kCode) - 1);
      const int bit = value * Field::kStep - first_bit;
      bits |= bit < 0 ? state >> -bit : state << bit;
    }
    store_bytes<2, unit_of<2>(Field::kAt, F::kCodeStride, 2)>(
        to + i64(block) * F::kCodeStride + Field::kAt + first_bit / 8, bits);
  }
}
template <class F, class Field>
KV_DEVICE void pack_streams(CodeFields<Field>, const u32* states, u8* to) {
  pack_streams<F, Field>(states, to);
}

// In place of write_rotated() of formats/write_row.cuh.
template <class Writer, int kPerLane>
requires(Writer::Encoder::F::Codes::kIsTrellis) KV_DEVICE
    void write_rotated(const float (&)[kPerLane], float (&rotated)[kPerLane], float tensor_scale, u8* bytes,
                       const StoredRow& to) {
  using R = typename Writer::Encoder;
  using F = typename R::F;
  using Search = TrellisSearch<typename F::Codes, F::kBlock>;
  Scales<kPerLane> scales;
  R::Rule::template find<R>(rotated, tensor_scale, scales);
  u32* const words = reinterpret_cast<u32*>(bytes);
  float* const least = reinterpret_cast<float*>(words + F::kStored);
  KV_UNROLL
  for (int e = 0; e < kPerLane; ++e)
    words[e * 32 + lane()] = bits_of(mul_rn(rotated[e], R::Divide::template factor<R>(scales.d[e], 0.f)));
  sync_warp();
  KV_NO_UNROLL
  for (int first = 0; first < F::kStored; first += F::kBlock) {
    Search search{words + first, least, reinterpret_cast<u8*>(least + 2 * Search::kGroups)};
    search.find();
  }
  float entry[kPerLane];
  KV_UNROLL
  for (int e = 0; e < kPerLane; ++e) entry[e] = F::Codes::value(words[e * 32 + lane()]);
  R::Refine::template refine<R>(rotated, entry, scales.d);
  pack_streams<F>(typename F::Codes::Fields{}, words, to.codes);
  store_numbers<F, typename F::Number, F::kScaleAt>(to, scales.d);
  Writer::pad(to);
}

}  // namespace kv
