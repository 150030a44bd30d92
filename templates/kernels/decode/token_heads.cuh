// decode of token-major heads, where the heads of a token lie side by side (cache.token_heads): a block takes all heads
// of its tiles, so that bulk copies read one contiguous range of memory. Rows of 66 bytes that are read one head at a
// time touch each line of memory several times.
//
// Warp w has head w % kHeads, and every (kWarps / kHeads)-th tile. The warps of one stream of tiles share its stages,
// in a ring. Each stage has two barriers: one says that the stage is filled; at the other each warp arrives when it is
// done with the stage, which is then filled again. Plan::kRows and kGroup are those of one head; a call has exactly
// these heads. Each block leaves partial results of all of them for merge, which treats them as one head with more
// query heads.
// SPDX-License-Identifier: MIT
#pragma once
#include "device/bulk_copy.cuh"
#include "kernels/decode/stage_token_heads.cuh"
#include "kernels/decode/decode.cuh"

namespace kv {

template <class Plan>
concept TakesHeads = (Plan::kHeads > 1);

template <class Plan>
KV_DEVICE int own_head() {
  return warp() % Plan::kHeads;
}
template <class Plan>
KV_DEVICE int own_stream() {
  return warp() / Plan::kHeads;
}

// The plan with query rows of all heads. AllRows has the rows of the call, in the order of merge. AllFragments has
// eight rows a head, as fragments have them.
template <class Plan>
struct AllRows : Plan {
  static constexpr int kHeads = 1, kRows = Plan::kHeads * Plan::kRows;
};
template <class Plan>
struct AllFragments : Plan {
  static constexpr int kHeads = 1, kColumnBlocks = Plan::kHeads, kRows = 8 * Plan::kHeads,
                       kGroup = Plan::kHeads * Plan::kGroup;
};
template <class Plan>
struct QueryChunk<AllFragments<Plan>> {
  int first_head;
  KV_DEVICE explicit QueryChunk(int scheduler_head) : first_head(scheduler_head * Plan::kHeads) {}
  KV_DEVICE bool has(int row) const { return row % 8 < Plan::kRows; }
  KV_DEVICE int query(int row) const { return row % 8 / Plan::kGroup; }
  KV_DEVICE int query_head(int row) const { return (first_head + row / 8) * Plan::kGroup + row % 8 % Plan::kGroup; }
};

// Units are those of the rows of one head, whose warps have its rows alone.
template <class Plan>
struct QueryUnits<AllFragments<Plan>> : UnitKinds<Plan> {};
template <TakesHeads Plan>
struct QueryUnits<Plan> : UnitKinds<Plan> {
  KV_DEVICE static int first_row() { return own_head<Plan>() * 8; }
};

// B fragments of the warp's own head.
template <TakesHeads Plan>
struct Queries<Plan> {
  using All = Queries<AllFragments<Plan>>;
  using Table = typename All::Table;
  static constexpr int kFragments = All::kFragments / Plan::kHeads, kWords = All::kWords;
  Table table;
  u32 held[Plan::kHoldQueries ? kFragments : 1][kWords];
  ColumnUnits<Plan> units;

  KV_DEVICE float hold(float scale) {
    table.load(Plan::kIntegerTableAt);
    if constexpr (Plan::kHoldQueries) {
      KV_UNROLL
      for (int i = 0; i < kFragments; ++i) read(i, held[i]);
    }
    return units.hold(scale);
  }
  KV_DEVICE u32 sum(int group, int i) const {
    return query_sum<AllFragments<Plan>>(group, own_head<Plan>() * 8 + 2 * (lane() & 3) + i);
  }
  KV_DEVICE void get(int fragment, u32 (&q)[kWords]) const {
    if constexpr (Plan::kHoldQueries) {
      KV_UNROLL
      for (int i = 0; i < kWords; ++i) q[i] = held[fragment][i];
    } else {
      read(fragment, q);
    }
  }

 private:
  KV_DEVICE static void read(int fragment, u32 (&q)[kWords]) {
    All::read(fragment * Plan::kHeads + own_head<Plan>(), q);
  }
};

// The ring of stages of the warp's stream of tiles. A stage holds one side of a tile, alternately K and V.
template <class Plan>
class TokenRing {
  using K = typename Plan::K;
  using V = typename Plan::V;
  static constexpr int kStreams = Plan::kWarps / Plan::kHeads, kStages = Plan::kStages, kTile = Plan::kTile;
  static_assert(K::kStageBytes == V::kStageBytes, "a stage holds either side");
  // Stages that are filled ahead of the one in use. One stage stays empty, so no warp waits for warps that are a little
  // behind.
  static constexpr int kAhead = kStages - 2;

  // A stage of the ring, and the parity of the number of rounds through the ring, in one register of the lane.
  class Place {
    u32 both_;

   public:
    KV_DEVICE Place(int stage, u32 parity) : both_(u32(stage) | parity << 16) {}
    KV_DEVICE int stage() const { return int(both_ & 0xffffu); }
    KV_DEVICE u32 parity() const { return both_ >> 16; }
    KV_DEVICE void advance() {
      ++both_;
      if (stage() == kStages) both_ = (both_ & 0xffff0000u) ^ 0x10000u;
    }
  };
  const AttentionArgs& args_;
  const KvSplit& split_;
  const SharedAddress stages_, barriers_;
  Place taken_{0, 0};
  int issuer_ = kAhead % Plan::kHeads;  // the head whose warp issues the next copies; heads alternate

  KV_DEVICE SharedAddress stage_at(int stage) const { return stages_ + stage * K::kStageBytes; }
  KV_DEVICE SharedAddress filled(int stage) const { return barriers_ + stage * 16; }
  KV_DEVICE SharedAddress emptied(int stage) const { return barriers_ + stage * 16 + 8; }

 public:
  KV_DEVICE TokenRing(const AttentionArgs& args, const KvSplit& split)
      : args_(args),
        split_(split),
        stages_(hide_from_optimizer(Plan::kRingAt + own_stream<Plan>() * kStages * K::kStageBytes)),
        barriers_(Plan::kBarriersAt + own_stream<Plan>() * kStages * 16) {}

  // Issues the copies of the first tiles. open() and then a block barrier must come before.
  KV_DEVICE void begin() const {
    const int tile = split_.first + own_stream<Plan>();
    KV_UNROLL
    for (int i = 0; i < kAhead; ++i) {
      if (own_head<Plan>() != i % Plan::kHeads) continue;
      if (i % 2 == 0)
        issue_copies<K>(args_.k, tile + i / 2 * kStreams, {i, 1});
      else
        issue_copies<V>(args_.v, tile + i / 2 * kStreams, {i, 1});
    }
  }
  KV_DEVICE void open() const {
    KV_UNROLL
    for (int i = 0; i < kStages; ++i)
      if (own_head<Plan>() == 0 && lane() == 0) open_barrier(filled(i), 1), open_barrier(emptied(i), Plan::kHeads);
    publish_barriers();
  }
  // Called behind a block barrier, when every tile is done.
  KV_DEVICE void close() const {
    KV_UNROLL
    for (int i = 0; i < kStages; ++i)
      if (own_head<Plan>() == 0 && lane() == 0) close_barrier(filled(i)), close_barrier(emptied(i));
  }

  // Waits for K of the stream's next tile and returns its address. V of the tile is in the next stage.
  KV_DEVICE SharedAddress take_keys(int tile) {
    if constexpr (kAhead % 2 == 0)
      issue_next<K>(args_.k, tile + kAhead / 2 * kStreams);
    else
      issue_next<V>(args_.v, tile + kAhead / 2 * kStreams);
    wait_phase(filled(taken_.stage()), taken_.parity());
    return stage_at(taken_.stage());
  }
  KV_DEVICE SharedAddress values_at() const { return stage_at(taken_.stage() + 1 == kStages ? 0 : taken_.stage() + 1); }
  // Releases K's stage, and waits for V of the tile.
  KV_DEVICE void take_values(int tile) {
    release();
    if constexpr (kAhead % 2 == 0)
      issue_next<V>(args_.v, tile + kAhead / 2 * kStreams);
    else
      issue_next<K>(args_.k, tile + (kAhead + 1) / 2 * kStreams);
    wait_phase(filled(taken_.stage()), taken_.parity());
  }
  KV_DEVICE void release() {
    sync_warp();  // every lane is done with the stage
    if (lane() == 0) arrive(emptied(taken_.stage()));
    taken_.advance();
  }

 private:
  template <class Side>
  KV_DEVICE void issue_next(const CacheSide& side, int tile) {
    if (own_head<Plan>() == issuer_) {
      const int stage = taken_.stage() + kAhead;
      const bool is_around = stage >= kStages;
      issue_copies<Side>(side, tile, {is_around ? stage - kStages : stage, taken_.parity() ^ (is_around ? 0u : 1u)});
    }
    issuer_ = issuer_ + 1 == Plan::kHeads ? 0 : issuer_ + 1;
  }
  // Issues the copies of one side of a tile, if the tile is in the split. It waits until the phase of the `emptied`
  // barrier that to.parity() names has ended.
  template <class Side>
  KV_DEVICE void issue_copies(const CacheSide& side, int tile, Place to) const {
    constexpr int kTokens = kTile / 8 * Side::kCopyEighths, kCopies = 8 / Side::kCopyEighths,
                  kBytes = token_bytes<Side>();
    if (tile >= split_.last) return;
    const int valid = clamp_to(split_.template readable<Plan>() - tile * kTile, kTile), first = lane() * kTokens;
    const int tokens = clamp_to(valid - first, kTokens);
    const u8* const from =
        side.codes + split_.sequence * side.codes_sequence_stride + (i64(tile) * kTile + first) * kBytes;
    wait_phase(emptied(to.stage()), to.parity());
    if (lane() == 0) arrive_and_announce(filled(to.stage()), u32(valid * kBytes));
    if (lane() < kCopies && tokens > 0)
      copy_bulk(stage_at(to.stage()) + eighth_at<Side>(lane() * Side::kCopyEighths), from, u32(tokens * kBytes),
                filled(to.stage()));
  }
};

// Features for tiles whose rows are not in the order of the tokens (stage_token_heads.cuh). They map a row to its
// token, and are otherwise those of the plan, `Own`. apply(), which runs between the scores and the products with V,
// releases K's stage and waits for V.
template <class Plan, class Own>
struct TileFeatures : Own {
  static constexpr int kTile = Plan::kTile;
  static_assert(Plan::kSubtiles * 16 == kTile, "rows that are taken together have tokens from all over the tile");
  int length;  // tokens of the sequence
  TokenRing<Plan>& ring;

  KV_DEVICE bool cuts(int first, int last) const { return last >= length || Own::cuts(first, last); }
  KV_DEVICE bool sees(int column, int at) const {
    const int token = at / kTile * kTile + token_of_row<kTile>(at % kTile);
    return token < length && Own::sees(column, token);
  }
  KV_DEVICE void apply(Scores<Plan> (&x)[Plan::kSubtiles], const typename Own::Loaded& loaded, int token,
                       const Softmax<Plan>& softmax) const {
    Own::apply(x, loaded, token, softmax);
    const SharedAddress values = ring.values_at();
    ring.take_values(token / kTile);
    const int valid = length - token;
    if (valid >= kTile) return;
    // Probabilities of tokens that do not exist are zeros, but zero times NaN would be NaN.
    clear_tokens<typename Plan::V, kTile>(values, own_head<Plan>(), valid > 0 ? valid : 0);
    sync_warp();  // all lanes have cleared
  }
};

// States of the block's warps in shared memory: [stream][row of all heads] of reference maximum and denominator, and of
// kPitch output elements.
template <class Plan>
struct HeadSums {
  using All = AllRows<Plan>;
  static constexpr int kStreams = Plan::kWarps / Plan::kHeads, kPitch = Plan::kValueDim + 4;
  static constexpr int kSumsAt = Plan::kEpilogueAt + (kStreams * All::kRows * 8 + 15) / 16 * 16;

  // Rows in the order of merge: query heads of a KV head inside KV heads of the block inside queries.
  KV_DEVICE static int row_of(int column) {
    return (column / Plan::kGroup * Plan::kHeads + own_head<Plan>()) * Plan::kGroup + column % Plan::kGroup;
  }
  KV_DEVICE static void store(const Outputs<Plan>& o, const Softmax<Plan>& softmax, float unit) {
    const int g = lane() >> 2, c = lane() & 3;
    KV_UNROLL
    for (int j = 0; j < 2; ++j) {
      const int column = 2 * c + j, at = own_stream<Plan>() * All::kRows + row_of(column);
      if (column >= Plan::kRows) continue;
      if (g == 0) {
        store_shared_u32(Plan::kEpilogueAt + at * 8, bits_of(softmax.reference_or_floor(0, j)));
        store_shared_u32(Plan::kEpilogueAt + at * 8 + 4, bits_of(softmax.sum[0][j]));
      }
      KV_UNROLL
      for (int half = 0; half < Plan::kValueDim / 8; ++half)
        store_shared_u32(kSumsAt + (at * kPitch + half * 8 + g) * 4, bits_of(o[0][half / 2][half % 2 * 2 + j] * unit));
    }
  }
  KV_DEVICE static SoftmaxState load(int stream, int row, int at) {
    const int place = stream * All::kRows + row;
    u32 state[2], words[4];
    load_shared_u128(words, kSumsAt + (place * kPitch + at) * 4);
    load_shared_u64(state, Plan::kEpilogueAt + place * 8);
    return {float_of(state[0]),
            float_of(state[1]),
            {float_of(words[0]), float_of(words[1]), float_of(words[2]), float_of(words[3])}};
  }
};

template <TakesHeads Plan, class Args, class TileScheduler>
KV_DEVICE void attend_split(const Args& args, TileScheduler& scheduler, KvSplit& split) {
  using K = typename Plan::K;
  using V = typename Plan::V;
  using All = AllRows<Plan>;
  using AllSums = HeadSums<Plan>;
  constexpr int kTile = Plan::kTile;
  scheduler.save_to_shared(Plan::kSchedulerAt, split);
  QueryRows<AllFragments<Plan>> rows;
  rows.load(args, split.sequence, QueryChunk<AllFragments<Plan>>(split.head));
  TokenRing<Plan> ring(args, split);
  using Own = decltype(features_of<Plan>(args, split));
  const TileFeatures<Plan, Own> features{features_of<Plan>(args, split), split.length, ring};
  ring.open();
  sync_block();  // the barriers of all streams are open
  ring.begin();

  const float unscaled = args.scale_log2 * K::kUnit;
  rows.store(unscaled);
  Queries<Plan> queries;
  const float scale = queries.hold(unscaled);

  Sums<Plan> sums;
  sums.softmax.reset();
  KV_NO_UNROLL
  for (int tile = split.first + own_stream<Plan>(); tile < split.last; tile += AllSums::kStreams) {
    const SharedAddress keys = ring.take_keys(tile);
    const i64 value_offset = i64(ring.values_at()) - (keys + K::kStageBytes);
    // To take_tile a tile is whole; its features know which tokens exist.
    take_tile<Plan>(sums, keys, queries, features, scale, tile * kTile, (tile + 1) * kTile, nullptr, 0, nullptr,
                    value_offset);
    ring.release();
  }

  KV_UNROLL
  for (int i = 0; i < 2; ++i) {
    float& sum = sums.softmax.sum[0][i];
    KV_UNROLL
    for (int mask = 4; mask < 32; mask <<= 1) sum += shfl_xor(sum, mask);
  }
  const float unit =
      args.value_scale * V::kUnit * (V::kScalesGroups || IsWide<V> ? exp2_fast(float(sums.value_scales.log2)) : 1.f);
  sync_block();  // stages and queries of all heads are free from here on
  ring.close();
  AllSums::store(sums.o, sums.softmax, unit);
  sync_block();  // the states of all warps are stored
  split = scheduler.restore_from_shared(Plan::kSchedulerAt);
  const i64 partial_index = scheduler.partial_index(block_x(), split.sequence, split.head);
  for_each_item<All>([&](int row, int at) {
    const SoftmaxState sum =
        sum_rows<AllSums::kStreams>(AllSums::kStreams, [&](int stream) { return AllSums::load(stream, row, at); });
    write_partial<All>(args, partial_index, row, at, sum);
  });
  yield_to_copies();  // those of the next KV split
}

}  // namespace kv
