// The queries of a sequence in kernels with run-time query lengths (args/varlen.cuh). Kernels move the places of rows
// by `shift`, so that query number kQueries - 1 is the sequence's last one.
// SPDX-License-Identifier: MIT
#pragma once
#include "args/features.cuh"
#include "args/tokens.cuh"
#include "args/varlen.cuh"
#include "device/simt.cuh"

namespace kv {

struct QueryRange {
  int first,      // row of q and out at which the queries of the sequence begin: in the batch if that is ragged, else 0
      count,      // queries of the sequence; 0 if the kernel leaves it alone
      lse_first;  // row of lse at which they begin
  // A query's number plus this shift is its row of q and out.
  KV_DEVICE int shift(int queries) const { return first + count - queries; }
};

KV_DEVICE QueryRange query_range(const VarlenArgs& args, int sequence) {
  QueryRange range{0, args.queries, sequence * args.queries};
  if (args.query_starts) {
    range.first = range.lse_first = int(load_coherent_u32(args.query_starts + sequence));
    range.count = int(load_coherent_u32(args.query_starts + sequence + 1)) - range.first;
  }
  if (range.count < args.least || range.count > args.most) range.count = 0;
  return range;
}

// The tokens that are scheduled, as Tokens says it: none of a sequence that the kernel leaves alone.
template <class Tokens>
struct TakenTokens : Tokens {
  static constexpr bool kCutsTiles = true;
  const VarlenArgs& varlen;
  KV_DEVICE TakenTokens(const Tokens& tokens, const VarlenArgs& args) : Tokens(tokens), varlen(args) {}
  KV_DEVICE int first(int sequence, int length) const {
    return query_range(varlen, sequence).count > 0 ? Tokens::first(sequence, length) : 0;
  }
  KV_DEVICE int end(int sequence, int length) const {
    return query_range(varlen, sequence).count > 0 ? Tokens::end(sequence, length) : 0;
  }
  // A sequence that the kernel attends for has queries; tiles are cut by as many as a sequence may have.
  KV_DEVICE TokenRange seen(int sequence, int length) const {
    if constexpr (Tokens::kCutsTiles)
      return Tokens::seen(sequence, length, Tokens::kQueries - query_range(varlen, sequence).count);
    else
      return {0, length};
  }
};

// Moves rows of `bytes` bytes an element by a number of queries.
KV_DEVICE void shift_rows(Rows& rows, i64 queries, int bytes) {
  rows.data = static_cast<u8*>(rows.data) + queries * rows.query_stride * bytes;
}
// Moves what features load and store for each query. query_heads: of all KV heads.
KV_DEVICE void shift_features(FeatureArgs& args, const QueryRange& range, int sequence, int queries, int query_heads) {
  const i64 shift = range.shift(queries);
  if (args.mask) args.mask += shift * args.mask_query_stride;
  if (args.packed_mask) args.packed_mask += shift * args.packed_query_stride;
  if (args.lse) args.lse += (i64(range.lse_first) + range.count - queries - i64(sequence) * queries) * query_heads;
}

// The arguments of one sequence, whose rows have been moved: for kernels of kQueries queries.
template <class Args>
struct OfSequence : Varlen<Args> {
  static constexpr bool kIsOfSequence = true;
};
// Arguments with run-time query lengths; of all sequences, as the kernel gets them.
template <class Args>
concept HasVarlen = requires(const Args& args) {
  args.varlen;
};
template <class Args>
concept HasAllSequences = HasVarlen<Args> && !requires {
  Args::kIsOfSequence;
};

template <class Plan, class Args>
KV_DEVICE OfSequence<Args> args_of_sequence(const Varlen<Args>& args, const QueryRange& range, int) {
  OfSequence<Args> own{args};
  const int shift = range.shift(Plan::kQueries);
  if constexpr (requires { own.q; }) shift_rows(own.q, shift, Plan::kQueryElementBytes);
  shift_rows(own.out, shift, Plan::kOutElementBytes);
  return own;
}
template <class Plan, class Args>
KV_DEVICE auto args_of_sequence(const Featured<Args>& args, const QueryRange& range, int sequence) {
  using Own = decltype(args_of_sequence<Plan>(static_cast<const Args&>(args), range, sequence));
  Featured<Own> featured{args_of_sequence<Plan>(static_cast<const Args&>(args), range, sequence), args.features};
  shift_features(featured.features, range, sequence, Plan::kQueries,
                 args.scheduler.kv_heads / Plan::kQueryChunks * Plan::kGroup);
  return featured;
}

}  // namespace kv
