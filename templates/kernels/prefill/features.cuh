// prefill with features (features/feature_list.cuh). What features hold for a query row is computed when a tile needs
// it: a lane has four rows and no registers for their data, and beside 64 scores of a tile that costs little.
// SPDX-License-Identifier: MIT
#pragma once
#include "args/features.cuh"
#include "features/feature_list.cuh"
#include "kernels/prefill/consumer.cuh"

namespace kv {

// Places say where features load and store for the queries of a work tile. kernels/prefill/varlen.cuh overloads
// places_of for plans with run-time query lengths.
struct PlainPlaces {
  const FeatureArgs& args;
  KV_DEVICE const FeatureArgs& of(const WorkTile&) const { return args; }
};
template <class Plan, class Args>
KV_DEVICE PlainPlaces places_of(const Featured<Args>& args) {
  return {args.features};
}

template <class Plan, class Places>
class FeaturedRule {
  using F = typename Plan::Feature;
  Places places_;
  int query_heads_;  // of all KV heads

  // Rows that do not exist are replaced by the last one, so that features read what is there.
  KV_DEVICE QueryRow query_row(const WorkTile& work, int row) const {
    const int there = row < Plan::kAllRows ? row : Plan::kAllRows - 1;
    return F::query_row(places_.args, work.sequence, there / Plan::kGroup,
                        work.head * Plan::kGroup + there % Plan::kGroup, query_heads_, work.length);
  }

  // Other rows of the lane have the same tokens. The compiler would compute them once and hold them in registers.
  KV_DEVICE static int hidden(int token) { return int(hide_from_optimizer(u32(token))); }

 public:
  static constexpr bool kChangesScores = F::kChangesScores, kOpensLate = true;

  KV_DEVICE FeaturedRule(const Places& places, const SchedulerArgs& scheduler)
      : places_(places), query_heads_(scheduler.kv_heads * Plan::kGroup) {}

  KV_DEVICE bool applies(const WorkTile& work, int tile) const {
    return kChangesScores || tile < work.first_whole_tile || tile >= work.end_whole_tile;
  }
  // s: scores of the lane's rows `row` and row + 8. If features change scores, they become exponents of 2: times `unit`
  // first.
  template <int kScores>
  KV_DEVICE void apply(float (&s)[kScores], const WorkTile& work, int row, int tile, float unit) const {
    if constexpr (kChangesScores) {
      KV_UNROLL
      for (int h = 0; h < 2; ++h) {
        const int first = hidden(first_token<Plan>(tile));
        int last = work.length - 1;
        const auto of_row = F::row(places_.of(work), query_row(work, row + 8 * h));
        KV_UNROLL
        for (int i = 0; i < kScores / 2; ++i) {
          if (F::kLoads && i % 8 == 0) last = hidden(last);  // registers hold few addresses at a time
          const int token = first + i / 2 * 8 + i % 2;
          float& score = s[i / 2 * 4 + 2 * h + i % 2];
          score = F::apply(score * unit, of_row, F::load(of_row, token < last ? token : last), token);
        }
      }
    }
    if (tile >= work.first_whole_tile && tile < work.end_whole_tile) return;
    const int first = hidden(first_token<Plan>(tile));
    int begin[2], end[2];
    KV_UNROLL
    for (int h = 0; h < 2; ++h) {
      const auto seen = F::row(places_.of(work), query_row(work, row + 8 * h)).seen;
      begin[h] = seen.first - first, end[h] = begin[h] + seen.count;
    }
    hide_unseen(s, begin, end);
  }
  // Whether a row sees a token. Features that hide tokens by their scores are asked with the score 0.
  KV_DEVICE bool sees(const WorkTile& work, int row, int token) const {
    const auto of_row = F::row(places_.of(work), query_row(work, row));
    if (!F::sees(of_row, token)) return false;
    return !kChangesScores || F::apply(0.f, of_row, F::load(of_row, token), token) != minus_infinity();
  }
  // Sinks join the denominator, and the row's LSE is stored.
  KV_DEVICE float end_row(float reference_max, float& denominator, const WorkTile& work, int row) const {
    const RowTotal total = F::finish(reference_max, denominator, F::end(places_.of(work), query_row(work, row)),
                                     (lane() & 3) == 0 && row < Plan::kAllRows);
    denominator = total.denominator;
    return total.rescale_factor;
  }
};

// Overloads for plans with features, chosen by the type of the arguments.
template <class Plan, class Args>
KV_DEVICE auto range_of(const Featured<Args>& args) {
  return typename Plan::Feature::Range(args.features);
}
template <class Plan, class Args>
KV_DEVICE auto rule_of(const Featured<Args>& args) {
  return FeaturedRule<Plan, decltype(places_of<Plan>(args))>(places_of<Plan>(args), args.scheduler);
}

}  // namespace kv
