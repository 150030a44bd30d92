// decode and merge with features (features/feature_list.cuh). What features hold for each row of a KV split is in
// shared memory, because several lanes use the same row and registers are scarce.
// SPDX-License-Identifier: MIT
#pragma once
#include "args/attention.cuh"
#include "kernels/decode/query_chunks.cuh"
#include "kernels/decode/tile_scheduler.cuh"
#include "features/feature_list.cuh"
#include "kernels/decode/split_merge.cuh"
#include "kernels/decode/softmax.cuh"

namespace kv {

// The query row of a feature. A row that the query chunk lacks is replaced by its first one, which always exists.
template <class Plan>
KV_DEVICE QueryRow query_row(const FeatureArgs& args, const SchedulerArgs& scheduler, const KvSplit& split, int row) {
  const QueryChunk<Plan> chunk(split.head);
  const int there = row < Plan::kRows && chunk.has(row) ? row : 0;
  return Plan::Feature::query_row(args, split.sequence, chunk.query(there), chunk.query_head(there),
                                  scheduler.kv_heads / Plan::kQueryChunks * Plan::kGroup, split.length);
}

// Rows and tokens of a lane's scores, which are counted over registers, columns and subtiles. Block: the plan whose
// rows are those of the block. Token-major heads have their own form (kernels/decode/token_heads_features.cuh).
template <class Plan>
struct ScorePlaces {
  using Block = Plan;
  static constexpr int kMostAhead = 16;           // scores of a lane whose loads may be in flight together
  KV_DEVICE static int first_row() { return 0; }  // the row of column 0, among those of the block
  KV_DEVICE static int column_of(int i) { return i / 4 % Plan::kColumnBlocks * 8 + 2 * (lane() & 3) + i % 2; }
  KV_DEVICE static int token_of(int i) { return i / (4 * Plan::kColumnBlocks) * 16 + (lane() >> 2) + 8 * (i % 4 / 2); }
};

// Features of a KV split: what its rows see, and how its scores change.
template <class Plan>
class SplitFeatures {
  using F = typename Plan::Feature;
  using Row = typename F::Row;
  using Places = ScorePlaces<Plan>;
  using Block = typename Places::Block;
  struct Bounds {
    int last,       // the last token of the sequence, or 0
        all_first,  // all rows see the tokens [all_first, all_end)
        all_end;
  };

  KV_DEVICE static Row* rows() { return reinterpret_cast<Row*>(shared_bytes() + Plan::kFeatureRowsAt); }
  KV_DEVICE static Bounds& bounds() {  // they come after the rows
    return *reinterpret_cast<Bounds*>(shared_bytes() + Plan::kFeatureRowsAt +
                                      Block::kColumnBlocks * 8 * Plan::kFeatureRowBytes);
  }
  KV_DEVICE static const Row& row_of(int column) { return rows()[Places::first_row() + column]; }
  KV_DEVICE static typename F::Loaded load_one(int i, int token) {
    const int at = token + Places::token_of(i);
    return F::load(row_of(Places::column_of(i)), at < bounds().last ? at : bounds().last);
  }
  // by_rows: the order that takes both scores of a row one after the other. Where there are many rows, a pause keeps
  // the compiler from issuing all of their loads at once.
  KV_DEVICE static constexpr int by_rows(int i) { return (i & ~3) | (i & 1) << 1 | (i >> 1 & 1); }
  KV_DEVICE static void pause(int each) {
    if (kScores > 16 && each % 2 == 0) sync_warp();
  }
  static constexpr int kScores = Plan::kSubtiles * 4 * Plan::kColumnBlocks;  // scores of a lane

 public:
  static constexpr bool kMayHide = F::kMayHide || F::Range::kMayHide, kHidesByScore = F::kMayHide;
  // Loads from memory are in flight while K is scored, if there are registers for their results.
  static constexpr bool kLoadsAhead = F::kLoads && kScores <= Places::kMostAhead;
  struct Loaded {
    typename F::Loaded of[kLoadsAhead ? kScores : 1];
  };

  // The rows may be used behind the next barrier of the block.
  KV_DEVICE SplitFeatures(const FeatureArgs& args, const SchedulerArgs& scheduler, const KvSplit& split) {
    static_assert(sizeof(Row) <= Plan::kFeatureRowBytes, "rows of features take more than was planned");
    KV_NO_UNROLL
    for (int i = thread(); i < Block::kColumnBlocks * 8; i += Plan::kThreads)
      rows()[i] = F::row(args, query_row<Block>(args, scheduler, split, i));
    const typename F::Range range(args);
    if (thread() == 0)
      bounds() = {split.length > 0 ? split.length - 1 : 0,
                  range.first(split.sequence, split.length, F::Range::kQueries - 1),
                  range.end(split.sequence, split.length, 0)};
  }

  KV_DEVICE bool cuts(int first, int last) const { return first < bounds().all_first || last >= bounds().all_end; }
  KV_DEVICE bool sees(int column, int token) const { return F::sees(row_of(column), token); }
  // Loads what the scores of tokens from `token` on need. Tokens that do not exist load what the last one does.
  KV_DEVICE void load(Loaded& loaded, int token) const {
    if constexpr (kLoadsAhead) {
      KV_UNROLL
      for (int i = 0; i < kScores; ++i) loaded.of[i] = load_one(i, token);
    }
  }
  KV_DEVICE void apply(Scores<Plan> (&x)[Plan::kSubtiles], const Loaded& loaded, int token,
                       const Softmax<Plan>& softmax) const {
    if constexpr (F::kChangesScores) {
      KV_UNROLL
      for (int each = 0; each < kScores; ++each) {
        const int i = by_rows(each), n = i / 4 % Plan::kColumnBlocks;
        pause(each);
        float& score = x[i / (4 * Plan::kColumnBlocks)][n][i % 4];
        const float reference_max = F::kNeedsWhole ? float(softmax.reference_max[n][i % 2]) : 0.f;
        const typename F::Loaded one = kLoadsAhead ? loaded.of[kLoadsAhead ? i : 0] : load_one(i, token);
        score = F::apply_first(score + reference_max, row_of(Places::column_of(i)), one, token + Places::token_of(i)) -
                reference_max;
      }
    }
  }
  // Gives tokens that F::hides() names minus infinity, whatever apply() left there. Rare.
  static constexpr bool kHidesLate = F::kHidesLate;
  KV_DEVICE void hide_late(Scores<Plan> (&x)[Plan::kSubtiles], int token) const {
    KV_UNROLL
    for (int i = 0; i < kScores; ++i) {
      pause(i);
      if (F::hides(row_of(Places::column_of(i)), load_one(i, token)))
        x[i / (4 * Plan::kColumnBlocks)][i / 4 % Plan::kColumnBlocks][i % 4] = minus_infinity();
    }
  }
};

// The end of a row: sinks and lse, by the plan's features.
template <class Plan>
struct FeaturedRowEnd {
  typename Plan::Feature::End end;
  bool exists;  // the row is one of the query chunk
  KV_DEVICE SoftmaxState of(SoftmaxState sum, bool is_first) const {
    const RowTotal total = Plan::Feature::finish(sum.row_max, sum.denominator, end, is_first && exists);
    sum.row_max = total.row_max, sum.denominator = total.denominator;
    KV_UNROLL
    for (float& x : sum.x) x *= total.rescale_factor;
    return sum;
  }
};

// Overloads for plans with features, chosen by the type of the arguments. Plans without features have overloads of
// their own in softmax.cuh, split_merge.cuh and tile_scheduler.cuh.
template <class Plan, class Args>
KV_DEVICE SplitFeatures<Plan> features_of(const Featured<Args>& args, const KvSplit& split) {
  return {args.features, args.scheduler, split};
}
template <class Plan, class Args>
KV_DEVICE FeaturedRowEnd<Plan> row_end(const Featured<Args>& args, const KvSplit& split, int row) {
  return {Plan::Feature::end(args.features, query_row<Plan>(args.features, args.scheduler, split, row)),
          QueryChunk<Plan>(split.head).has(row)};
}
template <class Plan, class Args>
KV_DEVICE auto scheduler_of(const Featured<Args>& args) {
  return TileScheduler<Plan::kTile, typename Plan::Feature::Range>(args.scheduler,
                                                                   typename Plan::Feature::Range(args.features));
}
template <class Plan, class Args>
KV_DEVICE bool may_read_lengths_early(const Featured<Args>& args) {
  return may_read_lengths_early<Plan>(static_cast<const Args&>(args)) && !args.features.position_offsets &&
         !args.features.token_ranges;
}

}  // namespace kv
