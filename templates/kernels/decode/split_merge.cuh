// Merge at the end of decode. The warps of a block are merged to the block's KV split, and the KV splits of a
// batch-head to rows of output, which are then rotated out of V's domain. A partial result of a row is its softmax
// state: reference maximum m (base 2), denominator d, and unnormalised output o. States merge exactly as in the online
// softmax:
//
//   m = max m_i;  w_i = 2^(m_i - m);  d = sum w_i d_i;  o = sum w_i o_i;  output = o / d
//
// Each warp has some of the rows, the same ones in every block. A block whose batch-head is unsplit writes its output
// at once. Else each warp writes its rows of the split to memory and counts them in the split counter of its
// batch-head. The warp that counts last merges these rows of all splits, in the order of the blocks, so the same call
// gives the same bits. Where a batch-head has many splits and a warp many sums, the host launches `merge`
// (kernels/decode/merge.cuh).
// SPDX-License-Identifier: MIT
#pragma once
#include "args/attention.cuh"
#include "device/simt.cuh"
#include "kernels/decode/query_chunks.cuh"
#include "kernels/decode/tile_scheduler.cuh"
#include "formats/rotated_domain.cuh"
#include "kernels/decode/softmax.cuh"

namespace kv {

// Softmax state of a row over some of its tokens, with four neighbouring elements of its output. The four are spelled
// out where many states are added up: the compiler would hold them in memory until it has unrolled a loop over them, at
// many times the instructions.
struct SoftmaxState {
  float row_max,    // reference maximum, base 2; kFloor: no token was seen
      denominator,  // sum of 2^(score - row_max)
      x[4];         // sums of 2^(score - row_max) times V
  KV_DEVICE float inverse() const { return denominator > 0.f ? 1.f / denominator : 0.f; }
  KV_DEVICE void scale(float by) {
    denominator *= by;
    x[0] *= by, x[1] *= by, x[2] *= by, x[3] *= by;
  }
  KV_DEVICE void add(float weight, const SoftmaxState& other) {
    denominator += weight * other.denominator;
    x[0] += weight * other.x[0], x[1] += weight * other.x[1], x[2] += weight * other.x[2], x[3] += weight * other.x[3];
  }
};

// Merges the states load(0) .. load(count - 1), in this order. kAtOnce loads are under way at a time.
template <int kAtOnce, class Load>
KV_DEVICE SoftmaxState sum_rows(int count, const Load& load) {
  SoftmaxState sum{kFloor, 0.f, {}};
  KV_NO_UNROLL
  for (int first = 0; first < count; first += kAtOnce) {
    SoftmaxState each[kAtOnce];
    KV_UNROLL
    for (int i = 0; i < kAtOnce; ++i) {  // no branch around a load, since a guarded load is waited for where it stands
      each[i] = load(first + i < count ? first + i : count - 1);
      if (first + i >= count) each[i].row_max = kFloor;
    }
    float row_max = sum.row_max;
    KV_UNROLL
    for (int i = 0; i < kAtOnce; ++i) row_max = larger(row_max, each[i].row_max);
    const float rescale_factor = exp2_fast(sum.row_max - row_max);
    sum.row_max = row_max;
    sum.scale(rescale_factor);
    KV_UNROLL
    for (int i = 0; i < kAtOnce; ++i) sum.add(exp2_fast(each[i].row_max - row_max), each[i]);
  }
  return sum;
}

// Partial results in memory, from `partial_index` on: elements at .. at + 3 of a row, in the order of the accumulators.
template <class Plan>
class Partials {
  const float *sums_,  // unnormalised output of the first slot
      *state_;         // its reference maximum and denominator

 public:
  template <class Args>
  KV_DEVICE Partials(const Args& args, i64 partial_index, int row, int at)
      : sums_(args.partial + (partial_index * Plan::kRows + row) * Plan::kValueDim + at),
        state_(args.partial_state + (partial_index * Plan::kRows + row) * 2) {}

  // The state in the slot that comes `p` slots later. Its address is one multiply-add.
  KV_DEVICE SoftmaxState load(int p) const {
    u32 state[2], words[4];
    load_coherent_u64(state, state_ + i64(p) * (Plan::kRows * 2));
    load_coherent_u128(words, sums_ + i64(p) * (Plan::kRows * Plan::kValueDim));
    return {float_of(state[0]),
            float_of(state[1]),
            {float_of(words[0]), float_of(words[1]), float_of(words[2]), float_of(words[3])}};
  }
};

// The end of a row whose KV splits are all merged. PlainRowEnd changes nothing. Plans with features
// (kernels/decode/features.cuh) may add a sink, or write the row's lse.
struct PlainRowEnd {
  KV_DEVICE SoftmaxState of(const SoftmaxState& sum, bool) const { return sum; }
};
template <class Plan, class Args>
KV_DEVICE PlainRowEnd row_end(const Args&, const KvSplit&, int) {
  return {};
}

// States of the block's warps in shared memory: [warp][row] of reference maximum and denominator, and [team][row] of
// kPitch output elements in the order of the accumulators. Warps of a team have one reference maximum and one output,
// and a denominator each.
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
        store_shared_u32(Plan::kEpilogueAt + at * 8, bits_of(softmax.reference_or_floor(n, j)));
        store_shared_u32(Plan::kEpilogueAt + at * 8 + 4, bits_of(softmax.sum[n][j]));
      }
    }
    constexpr int kHalves = Plan::kValueDim / 8 / Plan::kValueShare;
    const int first_row = TeamWarp<Plan>::first_block() * 8 + 2 * c,
              first_half = TeamWarp<Plan>::value_slice() * kHalves;
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
  KV_DEVICE static SoftmaxState load(int team, int row, int at) {
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

// Calls visit(row, at) for each four neighbouring output elements of the warp's rows. A warp has the same rows in every
// block, so the splits of a batch-head are counted and merged warp by warp.
template <class Plan, class Visit>
KV_DEVICE void for_each_item(const Visit& visit) {
  KV_NO_UNROLL
  for (int row = warp(); row < Plan::kRows; row += Plan::kWarps) {
    KV_NO_UNROLL
    for (int at = lane() * 4; at < Plan::kValueDim; at += 128) visit(row, at);
  }
}

// Divides four output elements by the denominator and stores them to shared memory, in the order of the dimensions.
template <class Plan>
KV_DEVICE void store_row(int row, int at, const SoftmaxState& sum) {
  const float inverse = sum.inverse();
  KV_UNROLL
  for (int j = 0; j < 4; ++j) {
    const int d = int(load_shared_u16(Plan::kOrderAt + (at + j) * 2));
    store_shared_u32(WarpSums<Plan>::kRowsAt + (row * Plan::kValueDim + d) * 4, bits_of(sum.x[j] * inverse));
  }
}

// The element of `out` at which a row of output begins.
template <class Plan>
KV_DEVICE i64 row_place(const Rows& out, int sequence, const QueryChunk<Plan>& chunk, int row) {
  return sequence * out.sequence_stride + chunk.query(row) * out.query_stride +
         i64(chunk.query_head(row)) * out.head_stride;
}

// Writes a row of output from shared memory, by one warp; out of V's rotated domain where the plan fuses that.
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
  if constexpr (Plan::kRotatesOutput) from_rotated<typename Plan::ValueDomain>(x, second);
  KV_UNROLL
  for (int e = 0; e < kPerLane; ++e)
    if (e * 32 + lane() < Plan::kOutputDim) Plan::store(out.data, to + e * 32 + lane(), x[e]);
}
template <class Plan>
KV_DEVICE void write_rows(const AttentionArgs& args, const KvSplit& split) {
  const QueryChunk<Plan> chunk(split.head);
  KV_NO_UNROLL
  for (int row = warp(); warp_uniform(row < Plan::kRows && chunk.has(row)); row += Plan::kWarps)
    write_row<Plan>(args.out, row_place<Plan>(args.out, split.sequence, chunk, row),
                    WarpSums<Plan>::kRowsAt + row * Plan::kValueDim * 4);
}

template <class Plan>
KV_DEVICE void write_partial(const AttentionArgs& args, i64 partial_index, int row, int at, const SoftmaxState& sum) {
  const i64 place = partial_index * Plan::kRows + row;
  store_u128(args.partial + place * Plan::kValueDim + at, bits_of(sum.x[0]), bits_of(sum.x[1]), bits_of(sum.x[2]),
             bits_of(sum.x[3]));
  if (at != 0) return;
  args.partial_state[place * 2] = sum.row_max;
  args.partial_state[place * 2 + 1] = sum.denominator;
}
// Counts the warp's rows of one split. True for the warp that counts last: then all splits of these rows are in memory.
template <class Plan>
KV_DEVICE bool is_last(u32* split_counters, int splits) {
  static_assert(Plan::kWarps <= kMostBlockWarps, "each warp has a counter");
  const u32 before = count_warp_arrival(split_counters);
  device_assert(warp_uniform(before < u32(splits)));  // otherwise a counter was not zero when the call began
  if (warp_uniform(before + 1 != u32(splits))) return false;
  if (lane() == 0) *split_counters = 0;
  return true;
}

// Merges the warp's rows of a batch-head into shared memory. Returns false if some split is not counted yet: the warp
// that counts last will merge. Serves rows that take a warp several steps, each of which reads all splits in order.
// Where there are many splits, the host leaves them to `merge`.
template <class Plan, class Args, class TileScheduler>
KV_DEVICE bool merge_in_order(const Args& args, const TileScheduler& scheduler, const KvSplit& split) {
  if (!is_last<Plan>(args.split_counters + split.first_block * kMostBlockWarps + warp(), split.splits)) return false;
  const i64 partial_index = scheduler.partial_index(split.first_block, split.sequence, split.head);
  for_each_item<Plan>([&](int row, int at) {
    const auto end = row_end<Plan>(args, split, row);
    const Partials<Plan> partials(args, partial_index, row, at);
    const SoftmaxState sum = sum_rows<kSplitsAtOnce>(split.splits, [&](int p) { return partials.load(p); });
    store_row<Plan>(row, at, end.of(sum, at == 0));
  });
  return true;
}

// Merges as merge_in_order does, but over a tree, for a warp with a single step: up to kSplitsAtOnce splits are a
// group, and the last warp of a group merges it to one split of the next level, until one group holds all.
template <class Plan, class Args, class TileScheduler>
KV_DEVICE bool merge_in_groups(const Args& args, const TileScheduler& scheduler, const KvSplit& split) {
  static_assert(Plan::kRows <= Plan::kWarps && Plan::kValueDim <= 128, "a warp has one step");
  // A split batch-head has at least two splits; otherwise the schedule is corrupt, and no group would hold all.
  device_assert(warp_uniform(split.splits > 1));
  const int first = split.first_block;
  int splits = split.splits;
  const int row = warp(), at = lane() * 4;
  const i64 partial_index = scheduler.partial_index(first, split.sequence, split.head);
  const Partials<Plan> partials(args, partial_index, row, at);
  const auto end = row_end<Plan>(args, split, row);
  int own = block_x() - first,  // number of this warp's split, or group, at the present level
      index_stride = 1;         // slots from one split of this level to the next
  KV_NO_UNROLL
  for (int level = 0; true; ++level) {
    const int begin = own / kSplitsAtOnce * kSplitsAtOnce,
              count = splits - begin < kSplitsAtOnce ? splits - begin : kSplitsAtOnce;
    if (warp_uniform(count > 1)) {
      // A group's counter is that of its first block, plus the level: groups begin at multiples of kSplitsAtOnce
      // blocks, so the counters between them are free. A group of one needs no counter: it is complete. Its counter
      // could be in use, where the block of the last split has the first split of the next batch-head.
      if (!is_last<Plan>(args.split_counters + (first + begin * index_stride + level) * kMostBlockWarps + warp(),
                         count))
        return false;
      const bool is_last_level = warp_uniform(splits <= kSplitsAtOnce);
      SoftmaxState sum{};
      if (at < Plan::kValueDim) {
        sum = sum_rows<kSplitsAtOnce>(count, [&](int p) { return partials.load((begin + p) * index_stride); });
        if (is_last_level) store_row<Plan>(row, at, end.of(sum, at == 0));
      }
      if (is_last_level) return true;
      sync_warp();  // every lane has read the states before the first of them is overwritten
      if (at < Plan::kValueDim) write_partial<Plan>(args, partial_index + i64(begin) * index_stride, row, at, sum);
    }
    own /= kSplitsAtOnce, splits = (splits + kSplitsAtOnce - 1) / kSplitsAtOnce, index_stride *= kSplitsAtOnce;
  }
}

// Called by all warps of a block when the tiles of a KV split are done.
template <class Plan, class Args, class TileScheduler>
KV_DEVICE void finish_split(const Args& args, const TileScheduler& scheduler, const KvSplit& split,
                            const Outputs<Plan>& o, const Softmax<Plan>& softmax, float unit) {
  using W = WarpSums<Plan>;
  sync_block();  // stages and queries in shared memory are free from here on
  W::store(o, softmax, unit);
  sync_block();
  if (warp_uniform(warp() >= Plan::kRows)) return;
  const bool is_unsplit = Plan::kFusesMerge && warp_uniform(split.is_unsplit());
  const i64 partial_index = scheduler.partial_index(block_x(), split.sequence, split.head);
  for_each_item<Plan>([&](int row, int at) {
    const SoftmaxState sum = sum_rows<W::kTeams>(W::kTeams, [&](int team) { return W::load(team, row, at); });
    if (is_unsplit)
      store_row<Plan>(row, at, row_end<Plan>(args, split, row).of(sum, at == 0));
    else
      write_partial<Plan>(args, partial_index, row, at, sum);
  });
  if constexpr (Plan::kFusesMerge) {
    if (!is_unsplit) {
      if (Plan::kMayNeedMergeKernel && !args.split_counters) return;  // the host launches `merge`
      if constexpr (Plan::kMayNeedMergeKernel) {
        if (!merge_in_order<Plan>(args, scheduler, split)) return;
      } else {
        if (!merge_in_groups<Plan>(args, scheduler, split)) return;
      }
    }
    sync_warp();
    write_rows<Plan>(args, split);
  }
}

}  // namespace kv
