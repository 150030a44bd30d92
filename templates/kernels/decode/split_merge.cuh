// decode, end: warps of a block to the block's partial result, the parts of a pair to its rows of output, and those
// back from V's domain. Each warp has some of the rows; the last block whose warp finishes its rows of a part takes
// those of the pair's other parts along, in the order of the blocks, so that the same call gives the same bits.
// SPDX-License-Identifier: MIT
#pragma once
#include "args/attention.cuh"
#include "device/simt.cuh"
#include "kernels/decode/query_chunks.cuh"
#include "kernels/decode/tile_scheduler.cuh"
#include "formats/rotated_domain.cuh"
#include "kernels/decode/softmax.cuh"

namespace kv {

// Four neighbouring sums of a row, and the row's softmax, of some of its tokens. The four are spelled out where many
// are added up: in a loop they would be memory to the compiler until it has unrolled that, and many times the
// instructions.
struct RowSums {
  float top, denominator, x[4];
  KV_DEVICE float inverse() const { return denominator > 0.f ? 1.f / denominator : 0.f; }
  KV_DEVICE void scale(float by) {
    denominator *= by;
    x[0] *= by, x[1] *= by, x[2] *= by, x[3] *= by;
  }
  KV_DEVICE void add(float weight, const RowSums& other) {
    denominator += weight * other.denominator;
    x[0] += weight * other.x[0], x[1] += weight * other.x[1], x[2] += weight * other.x[2], x[3] += weight * other.x[3];
  }
};

// The sum of load(0) .. load(count - 1), in this order; kAtOnce loads under way at a time.
template <int kAtOnce, class Load>
KV_DEVICE RowSums sum_rows(int count, const Load& load) {
  RowSums sum{kFloor, 0.f, {}};
  KV_NO_UNROLL
  for (int first = 0; first < count; first += kAtOnce) {
    RowSums each[kAtOnce];
    KV_UNROLL
    for (int i = 0; i < kAtOnce; ++i) {  // no branch around a load: behind one it would be waited for
      each[i] = load(first + i < count ? first + i : count - 1);
      if (first + i >= count) each[i].top = kFloor;
    }
    float top = sum.top;
    KV_UNROLL
    for (int i = 0; i < kAtOnce; ++i) top = larger(top, each[i].top);
    const float keep = exp2_fast(sum.top - top);
    sum.top = top;
    sum.scale(keep);
    KV_UNROLL
    for (int i = 0; i < kAtOnce; ++i) sum.add(exp2_fast(each[i].top - top), each[i]);
  }
  return sum;
}

// Partial results in memory, from a slot on: four sums from element `at` of a row on, in the order of the accumulators.
template <class Plan>
class Partials {
  const float *sums_, *state_;

 public:
  template <class Args>
  KV_DEVICE Partials(const Args& args, i64 slot, int row, int at)
      : sums_(args.partial + (slot * Plan::kRows + row) * Plan::kValueDim + at),
        state_(args.partial_state + (slot * Plan::kRows + row) * 2) {}

  // Of the slot that comes `p` later: an address is one multiply-add then.
  KV_DEVICE RowSums load(int p) const {
    u32 state[2], words[4];
    load_coherent_u64(state, state_ + i64(p) * (Plan::kRows * 2));
    load_coherent_u128(words, sums_ + i64(p) * (Plan::kRows * Plan::kValueDim));
    return {float_of(state[0]),
            float_of(state[1]),
            {float_of(words[0]), float_of(words[1]), float_of(words[2]), float_of(words[3])}};
  }
};

// A row's sums when all its parts are there: as they are. Plans with features (kernels/decode/features.cuh) may add a
// sink, or give the sum away.
struct PlainEnd {
  KV_DEVICE RowSums of(const RowSums& sum, bool) const { return sum; }
};
template <class Plan, class Args>
KV_DEVICE PlainEnd row_end(const Args&, const Part&, int) {
  return {};
}

// What the warps of the block have, in shared memory: [warp][row] of state (2), and [team][row] of sums (kPitch, in the
// order of accumulators). Warps of a team share a base and the sums; each has a denominator of its own.
template <class Plan>
struct WarpSums {
  static constexpr int kPitch = Plan::kValueDim + 4;
  static constexpr int kSumsAt = Plan::kEpilogueAt + (Plan::kWarps * Plan::kRows * 8 + 15) / 16 * 16,
                       kTeams = Plan::kWarps / Plan::kTeam, kRowsAt = kSumsAt + kTeams * Plan::kRows * kPitch * 4;

  KV_DEVICE static void store(const Outputs<Plan>& o, const Softmax<Plan>& softmax, float unit) {
    const int g = lane() >> 2, c = lane() & 3;
    KV_UNROLL
    for (int i = 0; i < 2 * Plan::kColumnBlocks; ++i) {
      const int n = i / 2, j = i % 2, row = n * 8 + 2 * c + j, at = warp() * Plan::kRows + row;
      if (g == 0 && row < Plan::kRows) {
        store_shared_u32(Plan::kEpilogueAt + at * 8, bits_of(softmax.base_or_floor(n, j)));
        store_shared_u32(Plan::kEpilogueAt + at * 8 + 4, bits_of(softmax.sum[n][j]));
      }
    }
    constexpr int kHalves = Plan::kValueDim / 8 / Plan::kValueShare;
    const int first_row = Share<Plan>::first_block() * 8 + 2 * c, first_half = Share<Plan>::value_part() * kHalves;
    KV_UNROLL
    for (int i = 0; i < 2 * Plan::kOwnBlocks; ++i) {
      const int n = i / 2, j = i % 2, row = first_row + n * 8 + j, at = warp() / Plan::kTeam * Plan::kRows + row;
      if (row >= Plan::kRows) continue;
      KV_UNROLL
      for (int half = 0; half < kHalves; ++half)
        store_shared_u32(kSumsAt + (at * kPitch + (first_half + half) * 8 + g) * 4,
                         bits_of(o[n][half / 2][half % 2 * 2 + j] * unit));
    }
  }
  KV_DEVICE static RowSums load(int team, int row, int at) {
    u32 state[2], words[4];
    load_shared_u128(words, kSumsAt + ((team * Plan::kRows + row) * kPitch + at) * 4);
    float denominator = 0.f;
    KV_UNROLL
    for (int member = 0; member < Plan::kTeam; ++member) {
      load_shared_u64(state, Plan::kEpilogueAt + ((team * Plan::kTeam + member) * Plan::kRows + row) * 8);
      denominator += float_of(state[1]);
    }
    return {float_of(state[0]),
            denominator,
            {float_of(words[0]), float_of(words[1]), float_of(words[2]), float_of(words[3])}};
  }
};

// visit(row, at) for each four neighbouring sums of the warp's rows. A warp has the same rows in every block, so that
// parts of a pair meet warp by warp.
template <class Plan, class Visit>
KV_DEVICE void for_each_item(const Visit& visit) {
  KV_NO_UNROLL
  for (int row = warp(); row < Plan::kRows; row += Plan::kWarps) {
    KV_NO_UNROLL
    for (int at = lane() * 4; at < Plan::kValueDim; at += 128) visit(row, at);
  }
}

// Softmax's quotient of four sums, in the order of the dimensions, to the pair's rows in shared memory.
template <class Plan>
KV_DEVICE void store_row(int row, int at, const RowSums& sum) {
  const float inverse = sum.inverse();
  KV_UNROLL
  for (int j = 0; j < 4; ++j) {
    const int d = int(load_shared_u16(Plan::kOrderAt + (at + j) * 2));
    store_shared_u32(WarpSums<Plan>::kRowsAt + (row * Plan::kValueDim + d) * 4, bits_of(sum.x[j] * inverse));
  }
}

// Where a row of output begins, in elements.
template <class Plan>
KV_DEVICE i64 row_place(const Rows& out, int sequence, const Turn<Plan>& turn, int row) {
  return sequence * out.sequence_stride + turn.query(row) * out.query_stride +
         i64(turn.query_head(row)) * out.head_stride;
}

// A warp's row from shared memory to the output, out of V's domain where the plan fuses that.
template <class Plan>
KV_DEVICE void write_row(const Rows& out, i64 to, SharedAddress from) {
  constexpr int kPerLane = Plan::kOutputStored / 32;
  float x[kPerLane];
  [[maybe_unused]] float second[kPerLane];
  KV_UNROLL
  for (int e = 0; e < kPerLane; ++e) {
    const SharedAddress at = from + (e * 32 + lane()) * 4;
    x[e] = float_of(load_shared_u32(at));
    if constexpr (Plan::kValueDim > Plan::kOutputStored)
      second[e] = float_of(load_shared_u32(at + Plan::kOutputStored * 4));
  }
  if constexpr (Plan::kRotatesOutput) from_inner<typename Plan::ValueDomain>(x, second);
  KV_UNROLL
  for (int e = 0; e < kPerLane; ++e)
    if (e * 32 + lane() < Plan::kOutputDim) Plan::store(out.data, to + e * 32 + lane(), x[e]);
}
template <class Plan>
KV_DEVICE void write_rows(const AttentionArgs& args, const Part& part) {
  const Turn<Plan> turn(part.head);
  KV_NO_UNROLL
  for (int row = warp(); agreed(row < Plan::kRows && turn.has(row)); row += Plan::kWarps)
    write_row<Plan>(args.out, row_place<Plan>(args.out, part.sequence, turn, row),
                    WarpSums<Plan>::kRowsAt + row * Plan::kValueDim * 4);
}

template <class Plan>
KV_DEVICE void write_partial(const AttentionArgs& args, i64 slot, int row, int at, const RowSums& sum) {
  const i64 place = slot * Plan::kRows + row;
  store_u128(args.partial + place * Plan::kValueDim + at, bits_of(sum.x[0]), bits_of(sum.x[1]), bits_of(sum.x[2]),
             bits_of(sum.x[3]));
  if (at != 0) return;
  args.partial_state[place * 2] = sum.top;
  args.partial_state[place * 2 + 1] = sum.denominator;
}
// Counts the warp's rows of a part; true for the last block's, when those of all parts are there.
template <class Plan>
KV_DEVICE bool is_last(u32* arrivals, int parts) {
  static_assert(Plan::kWarps <= kMostBlockWarps, "each warp has a counter");
  const u32 before = count_warp_arrival(arrivals);
  require(agreed(before < u32(parts)));  // else the counters were not zero when the call began
  if (agreed(before + 1 != u32(parts))) return false;
  if (lane() == 0) *arrivals = 0;
  return true;
}

// The warp's rows of a pair to shared memory, if all its parts are there by now: true then. Of several steps a warp
// takes all parts in a line; where there are many, the host leaves them to `merge`.
template <class Plan, class Args, class Work>
KV_DEVICE bool merge_line(const Args& args, const Work& work, const Part& part) {
  if (!is_last<Plan>(args.arrivals + part.first_block * kMostBlockWarps + warp(), part.parts)) return false;
  const i64 slot = work.slot(part.first_block, part.sequence, part.head);
  for_each_item<Plan>([&](int row, int at) {
    const auto end = row_end<Plan>(args, part, row);
    const Partials<Plan> partials(args, slot, row, at);
    const RowSums sum = sum_rows<kPartsAtOnce>(part.parts, [&](int p) { return partials.load(p); });
    store_row<Plan>(row, at, end.of(sum, at == 0));
  });
  return true;
}

// Of one step: groups of kPartsAtOnce parts become parts themselves, each by the last warp of its group, up to the one
// group of all.
template <class Plan, class Args, class Work>
KV_DEVICE bool merge_groups(const Args& args, const Work& work, const Part& part) {
  static_assert(Plan::kRows <= Plan::kWarps && Plan::kValueDim <= 128, "a warp has one step");
  // One part that is not whole is of work that is cut wrongly: of its groups none is that of all.
  require(agreed(part.parts > 1));
  const int first = part.first_block;
  int parts = part.parts;
  const int row = warp(), at = lane() * 4;
  const i64 slot = work.slot(first, part.sequence, part.head);
  const Partials<Plan> partials(args, slot, row, at);
  const auto end = row_end<Plan>(args, part, row);
  int own = block_x() - first, apart = 1;  // which of the parts; how many slots they are apart
  KV_NO_UNROLL
  for (int level = 0; true; ++level) {
    const int begin = own / kPartsAtOnce * kPartsAtOnce,
              count = parts - begin < kPartsAtOnce ? parts - begin : kPartsAtOnce;
    if (agreed(count > 1)) {
      // Groups begin at multiples of kPartsAtOnce blocks, so counters of other levels are free between them. The last
      // part's block may have the next pair's first one, and its counter: there a group has no other part, and is there
      // as it stands.
      if (!is_last<Plan>(args.arrivals + (first + begin * apart + level) * kMostBlockWarps + warp(), count))
        return false;
      const bool is_top = agreed(parts <= kPartsAtOnce);
      RowSums sum{};
      if (at < Plan::kValueDim) {
        sum = sum_rows<kPartsAtOnce>(count, [&](int p) { return partials.load((begin + p) * apart); });
        if (is_top) store_row<Plan>(row, at, end.of(sum, at == 0));
      }
      if (is_top) return true;
      sync_warp();  // every lane has read what is written now
      if (at < Plan::kValueDim) write_partial<Plan>(args, slot + i64(begin) * apart, row, at, sum);
    }
    own /= kPartsAtOnce, parts = (parts + kPartsAtOnce - 1) / kPartsAtOnce, apart *= kPartsAtOnce;
  }
}

// All warps, when their tiles of a part are done.
template <class Plan, class Args, class Work>
KV_DEVICE void finish_part(const Args& args, const Work& work, const Part& part, const Outputs<Plan>& o,
                           const Softmax<Plan>& softmax, float unit) {
  using W = WarpSums<Plan>;
  sync_block();  // stages and queries are dead from here
  W::store(o, softmax, unit);
  sync_block();
  if (agreed(warp() >= Plan::kRows)) return;
  const bool is_whole = Plan::kFinishes && agreed(part.is_whole());
  const i64 slot = work.slot(block_x(), part.sequence, part.head);
  for_each_item<Plan>([&](int row, int at) {
    const RowSums sum = sum_rows<W::kTeams>(W::kTeams, [&](int team) { return W::load(team, row, at); });
    if (is_whole)
      store_row<Plan>(row, at, row_end<Plan>(args, part, row).of(sum, at == 0));
    else
      write_partial<Plan>(args, slot, row, at, sum);
  });
  if constexpr (Plan::kFinishes) {
    if (!is_whole) {
      if (Plan::kLeavesParts && !args.arrivals) return;  // for `merge`
      if constexpr (Plan::kLeavesParts) {
        if (!merge_line<Plan>(args, work, part)) return;
      } else {
        if (!merge_groups<Plan>(args, work, part)) return;
      }
    }
    sync_warp();
    write_rows<Plan>(args, part);
  }
}

}  // namespace kv
