// Features of a call, one after the other: each takes a score (base 2: scale and log2(e) are in it) of a query row and
// a token, and gives it back changed; minus infinity is a token that is not seen. Some also have a part in the end of a
// row, when its scores are summed up. A feature is a struct of static functions over FeatureDefaults; what it has of
// its own for a row, a token or a row's end is a struct in it. features/token_range.cuh says which tokens a row sees at
// all.
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
  int sequence, query, head, heads;  // head: of all query heads
  int length, position;              // of the sequence's tokens; of the query among them
};

// A row's sums: of 2^(score - top), and what was added up with the same factors is to be multiplied by.
struct RowTotal {
  float top, denominator, keep;
};

template <class Feature>
struct FeatureDefaults {
  struct Row {};     // of a row of queries, found once
  struct Loaded {};  // of a row and a token; asked for before the score is there
  struct End {};     // of a row, asked for before its sums are there
  static constexpr bool kChangesScores = true;
  static constexpr bool kLoads = false;       // Loaded comes from memory
  static constexpr bool kNeedsWhole = false;  // else the score may come as a difference from some other number
  KV_DEVICE static Row row(const FeatureArgs&, const QueryRow&) { return {}; }
  template <class Row>
  KV_DEVICE static Loaded load(const Row&, int) {
    return {};
  }
  template <class Row, class Loaded>
  KV_DEVICE static float apply(float score, const Row&, const Loaded&, int) {
    return score;
  }
  KV_DEVICE static End end(const FeatureArgs&, const QueryRow&) { return {}; }
  template <class End>
  KV_DEVICE static void finish(RowTotal&, const End&, bool) {}
};

template <class SeenRange, class... Each>
struct Features : EveryValue {
  using Range = SeenRange;
  struct Seen {
    int first, count;
  };
  struct Row : Each::Row... {
    Seen seen;
  };
  struct Loaded : Each::Loaded... {};
  struct End : Each::End... {};
  static constexpr bool kChangesScores = (Each::kChangesScores || ... || false),
                        kLoads = (Each::kLoads || ... || false), kNeedsWhole = (Each::kNeedsWhole || ... || false);

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
  KV_DEVICE static End end(const FeatureArgs& args, const QueryRow& at) {
    End end{};
    ((static_cast<typename Each::End&>(end) = Each::end(args, at)), ...);
    return end;
  }
  // In the order of the features: sinks come before what gives the sum away.
  KV_DEVICE static RowTotal finish(float top, float denominator, const End& end, bool is_first) {
    RowTotal total{top, denominator, 1.f};
    ((Each::finish(total, end, is_first)), ...);
    return total;
  }
};

}  // namespace kv
