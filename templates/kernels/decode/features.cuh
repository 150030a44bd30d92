// decode and merge of plans with features (features/feature_list.cuh). What the rows of a part have of their own stands
// in shared memory: lanes share rows, and registers are short.
// SPDX-License-Identifier: MIT
#pragma once
#include "args/attention.cuh"
#include "kernels/decode/query_chunks.cuh"
#include "kernels/decode/tile_scheduler.cuh"
#include "features/feature_list.cuh"
#include "kernels/decode/split_merge.cuh"
#include "kernels/decode/softmax.cuh"

namespace kv {

// Rows that a turn lacks stand for its first one, which is always there.
template <class Plan>
KV_DEVICE QueryRow query_row(const FeatureArgs& args, const WorkArgs& work, const Part& part, int row) {
  const Turn<Plan> turn(part.head);
  const int there = row < Plan::kRows && turn.has(row) ? row : 0;
  return Plan::Feature::query_row(args, part.sequence, turn.query(there), turn.query_head(there),
                                  work.kv_heads / Plan::kTurns * Plan::kGroup, part.length);
}

template <class Plan>
class PartFeatures {
  using F = typename Plan::Feature;
  using Row = typename F::Row;
  struct Bounds {
    int last, all_first, all_end;  // the last token that there is; tokens that all rows see
  };

  KV_DEVICE static Row* rows() { return reinterpret_cast<Row*>(shared_bytes() + Plan::kFeatureRowsAt); }
  KV_DEVICE static Bounds& bounds() {  // behind the rows
    return *reinterpret_cast<Bounds*>(shared_bytes() + Plan::kFeatureRowsAt +
                                      Plan::kColumnBlocks * 8 * Plan::kFeatureRowBytes);
  }
  // Of the lane's score i of the columns and subtiles: its row and token.
  KV_DEVICE static int row_of(int i) { return i / 4 % Plan::kColumnBlocks * 8 + 2 * (lane() & 3) + i % 2; }
  KV_DEVICE static int token_of(int i) { return i / (4 * Plan::kColumnBlocks) * 16 + (lane() >> 2) + 8 * (i % 4 / 2); }
  KV_DEVICE typename F::Loaded load_one(int i, int token) const {
    const int at = token + token_of(i);
    return F::load(rows()[row_of(i)], at < bounds().last ? at : bounds().last);
  }
  // Both scores of a row, one after the other; and where there are many rows, the compiler is not to ask for all of
  // them at once.
  KV_DEVICE static constexpr int by_rows(int i) { return (i & ~3) | (i & 1) << 1 | (i >> 1 & 1); }
  KV_DEVICE static void pause(int each) {
    if (kScores > 16 && each % 2 == 0) sync_warp();
  }
  static constexpr int kScores = Plan::kSubtiles * 4 * Plan::kColumnBlocks;  // of a lane

 public:
  // Loads are under way while K is scored, where registers hold what they bring.
  static constexpr bool kLoadsAhead = F::kLoads && kScores <= 16;
  struct Loaded {
    typename F::Loaded of[kLoadsAhead ? kScores : 1];
  };

  // Rows are there behind the next barrier of the block.
  KV_DEVICE PartFeatures(const FeatureArgs& args, const WorkArgs& work, const Part& part) {
    static_assert(sizeof(Row) <= Plan::kFeatureRowBytes, "rows of features take more than was planned");
    KV_NO_UNROLL
    for (int i = thread(); i < Plan::kColumnBlocks * 8; i += Plan::kThreads)
      rows()[i] = F::row(args, query_row<Plan>(args, work, part, i));
    const typename F::Range range(args);
    if (thread() == 0)
      bounds() = {part.length > 0 ? part.length - 1 : 0,
                  range.first(part.sequence, part.length, F::Range::kQueries - 1),
                  range.end(part.sequence, part.length, 0)};
  }

  KV_DEVICE bool cuts(int first, int last) const { return first < bounds().all_first || last >= bounds().all_end; }
  KV_DEVICE bool sees(int row, int token) const { return F::sees(rows()[row], token); }
  // Asks for what the scores of tokens from `token` on will need. Tokens that are not there ask like the last one.
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
        const float base = F::kNeedsWhole ? float(softmax.base[n][i % 2]) : 0.f;
        const typename F::Loaded one = kLoadsAhead ? loaded.of[kLoadsAhead ? i : 0] : load_one(i, token);
        score = F::apply(score + base, rows()[row_of(i)], one, token + token_of(i)) - base;
      }
    }
  }
};

template <class Plan>
struct FeaturedEnd {
  typename Plan::Feature::End end;
  bool exists;  // the row
  KV_DEVICE RowSums of(RowSums sum, bool is_first) const {
    const RowTotal total = Plan::Feature::finish(sum.top, sum.denominator, end, is_first && exists);
    sum.top = total.top, sum.denominator = total.denominator;
    KV_UNROLL
    for (float& x : sum.x) x *= total.keep;
    return sum;
  }
};

// What decode and merge ask for by their arguments; without features they have answers of their own.
template <class Plan, class Args>
KV_DEVICE PartFeatures<Plan> features_of(const Featured<Args>& args, const Part& part) {
  return {args.features, args.work, part};
}
template <class Plan, class Args>
KV_DEVICE FeaturedEnd<Plan> row_end(const Featured<Args>& args, const Part& part, int row) {
  return {Plan::Feature::end(args.features, query_row<Plan>(args.features, args.work, part, row)),
          Turn<Plan>(part.head).has(row)};
}
template <class Plan, class Args>
KV_DEVICE auto work_of(const Featured<Args>& args) {
  return Work<Plan::kTile, typename Plan::Feature::Range>(args.work, typename Plan::Feature::Range(args.features));
}
template <class Plan, class Args>
KV_DEVICE bool may_look_early(const Featured<Args>& args) {
  return may_look_early<Plan>(static_cast<const Args&>(args)) && !args.features.position_offsets;
}

}  // namespace kv
