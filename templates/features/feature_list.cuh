// The features of a call, applied one after the other. Each takes a score of a query row and a token, and returns it
// changed. Scores are base-2 exponents: the softmax scale and log2(e) are factors of them. Minus infinity hides a
// token.
//
// Some features also act at the end of a row, when its scores are summed up. A feature is a struct of static functions
// over FeatureDefaults. Its nested structs Row, Loaded and End hold its data for a query row, for a row and a token,
// and for the end of a row. features/token_range.cuh says which tokens a row sees at all.
// SPDX-License-Identifier: MIT
#pragma once
#include "device/simt.cuh"
#include "args/features.cuh"
#include "features/every_value.cuh"
#include "features/token_range.cuh"

namespace kv {

constexpr float kLog2E = 1.44269504f, kLn2 = 0.693147181f;
KV_DEVICE float minus_infinity() { return float_of(0xff800000u); }

struct QueryRow {
  int sequence,
      query,     // of the sequence's queries in this call
      head,      // among the query heads of all KV heads
      heads;     // query heads of all KV heads
  int length,    // tokens of the sequence
      position;  // of the query among them
};

// The sums of a query row's softmax.
struct RowTotal {
  float row_max,       // reference maximum, base 2
      denominator,     // sum of 2^(score - row_max)
      rescale_factor;  // multiplies the row's output sums, which are relative to the row_max before finish()
};

// The defaults of a feature.
template <class Feature>
struct FeatureDefaults {
  struct Row {};     // data of a query row, computed once
  struct Loaded {};  // data of a row and a token; may be loaded before the score is computed
  struct End {};     // data for the end of a row; may be loaded before its sums are computed
  static constexpr bool kChangesScores = true;
  static constexpr bool kLoads = false;       // Loaded comes from memory
  static constexpr bool kMayHide = false;     // a score may become minus infinity, which hides the token from the row
  // apply_first() leaves tokens that hides() names with a score that is minus or plus infinity or NaN. It is for
  // families that look for such scores, and for features after which no other one needs the score.
  static constexpr bool kHidesLate = false;
  static constexpr bool kNeedsWhole = false;  // apply() needs the whole score; else the score may come as a difference
  KV_DEVICE static Row row(const FeatureArgs&, const QueryRow&) { return {}; }
  template <class Row>
  KV_DEVICE static Loaded load(const Row&, int) {
    return {};
  }
  template <class Row, class Loaded>
  KV_DEVICE static float apply(float score, const Row&, const Loaded&, int) {
    return score;
  }
  template <class Row, class Loaded>
  KV_DEVICE static bool hides(const Row&, const Loaded&) {
    return false;
  }
  KV_DEVICE static End end(const FeatureArgs&, const QueryRow&) { return {}; }
  template <class End>
  KV_DEVICE static void finish(RowTotal&, const End&, bool) {}
};

// All features of a plan, as one: SeenRange says which tokens a query sees, Each are the features in order.
template <class SeenRange, class... Each>
struct Features : EveryValue {
  using Range = SeenRange;
  struct Seen {
    int first,  // the first token that the row sees
        count;  // tokens from there on
  };
  struct Row : Each::Row... {
    Seen seen;
  };
  struct Loaded : Each::Loaded... {};
  struct End : Each::End... {};
  static constexpr bool kChangesScores = (Each::kChangesScores || ... || false),
                        kLoads = (Each::kLoads || ... || false), kNeedsWhole = (Each::kNeedsWhole || ... || false),
                        kMayHide = (Each::kMayHide || ... || false),
                        kHidesLate = (Each::kHidesLate || ... || false) && !kNeedsWhole;

  KV_DEVICE static QueryRow query_row(const FeatureArgs& args, int sequence, int query, int head, int heads,
                                      int length) {
    return {sequence, query, head, heads, length, Range(args).position(sequence, length, query)};
  }
  KV_DEVICE static Row row(const FeatureArgs& args, const QueryRow& at) {
    Row row{};
    ((static_cast<typename Each::Row&>(row) = Each::row(args, at)), ...);
    const Range range(args);
    const int first = range.first(at.sequence, at.length, at.query), end = range.end(at.sequence, at.length, at.query);
    row.seen = {first, end > first ? end - first : 0};
    return row;
  }
  KV_DEVICE static bool sees(const Row& row, int token) { return u32(token - row.seen.first) < u32(row.seen.count); }
  KV_DEVICE static Loaded load(const Row& row, int token) {
    Loaded loaded{};
    ((static_cast<typename Each::Loaded&>(loaded) = Each::load(row, token)), ...);
    return loaded;
  }
  KV_DEVICE static float apply(float score, const Row& row, const Loaded& loaded, int token) {
    ((score = Each::apply(score, row, loaded, token)), ...);
    return score;
  }
  KV_DEVICE static float apply_first(float score, const Row& row, const Loaded& loaded, int token) {
    const auto one = [&]<class F>(F) {
      if constexpr (F::kHidesLate && kHidesLate)
        score = F::apply_first(score, row, loaded);
      else
        score = F::apply(score, row, loaded, token);
    };
    (one(Each{}), ...);
    return score;
  }
  KV_DEVICE static bool hides(const Row& row, const Loaded& loaded) {
    return (Each::hides(row, loaded) || ... || false);
  }
  KV_DEVICE static End end(const FeatureArgs& args, const QueryRow& at) {
    End end{};
    ((static_cast<typename Each::End&>(end) = Each::end(args, at)), ...);
    return end;
  }
  // Features act in order. Sinks come before lse, which stores the sum. is_first: this lane writes the row's results,
  // such as its LSE.
  KV_DEVICE static RowTotal finish(float row_max, float denominator, const End& end, bool is_first) {
    RowTotal total{row_max, denominator, 1.f};
    ((Each::finish(total, end, is_first)), ...);
    return total;
  }
};

}  // namespace kv
