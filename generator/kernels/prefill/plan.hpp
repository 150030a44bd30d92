// PrefillPlan: everything that the prefill family decided for one problem, with the reasons as Decisions. Both sides
// are read as decode reads K (kernels/decode/staged_side.cpp): four lanes share a row. plan_prefill makes it.
// SPDX-License-Identifier: MIT
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "generator/kernels/decode/plan.hpp"

namespace kvjit {

// What the numbers of a side are bounded by, where they leave the range of fp16
// (templates/kernels/prefill/exponents.cuh). A row is unpacked as it is if its largest scale, or number, is from
// `least` to `most`.
struct FittingRange {
  bool is_wide = false;        // numbers of the format may leave fp16
  double largest_code = 1;     // in the unit of the side
  int least = 0, most = 0;     // scales: the bits of halves; numbers, and scales that are divided: those of bfloats
  int most_minimum = 0;        // the bits of a half
  bool rounds_scales = false;  // scales are rounded to halves, which subnormal ones do not hold
};

// The shape is that of the kernel's own call. q_type is what the kernel reads: f32 if rotate_q wrote it. out_type is
// what it writes: f32 if rotate_out reads it.
struct PrefillPlan : AttentionShape {
  std::string name;
  Arch arch;
  // The steps of the launch beside attention: Q into K's rotated domain before, the output out of V's after.
  bool rotates_queries = false, rotates_output = false;
  bool by_mma = false;       // mma.sync without roles, on archs without wgmma
  bool copies_rows = false;  // both sides are f16, which the producer copies as they are
  // Heads of more than 256 dimensions: both consumers have the same query rows, and each half of V's dimensions.
  bool shares_rows = false;
  bool alternates = false;  // up to 64 query rows: both consumers have all of them, and every second tile
  int tokens = 128;         // of a tile
  int value_dim = 0;        // dimensions of V as an operand: those of its rows, or more
  int stage_tokens = 32;    // tokens that a warp of the producer brings at once
  int ring = 1;             // stages of packed rows of each side that a warp of the producer has
  int producer_registers = 0, consumer_registers = 0;  // of a thread, once registers have moved
  bool scales_scores = false,                          // K's rows have one scale each, which multiplies scores
      tracks_maximum = false;  // the maximum of each tile is computed (templates/kernels/prefill/softmax.cuh)
  // Up to 128 query rows are one block of 64 for each consumer. Then the producer has less time for a tile, and twice
  // as many warps.
  int blocks = 2,          // of 64 query rows that a consumer has
      producer_warps = 4,  // one or two warpgroups
      stages = 2;  // of K, and of V, as halves; heads of more than 128 dimensions leave room and registers for one
  PrefillChoice choice = PrefillChoice::never;
  // A row may not see a token by its place, ahead of the first that all rows of the work tile see or behind the last;
  // or by its score, wherever it is (templates/kernels/prefill/hidden_values.cuh).
  bool hides_first = false, hides_last = false, hides_by_score = false;
  bool over_context_chunks = false;  // the second pass of two: it attends to a chunk of the context
  bool is_one_of_two = false;        // ... if rows have powers of two, or if none has
  int least_queries = 1;             // with run-time query lengths: sequences of fewer queries are faster by decode
  int query_bytes = 0;               // of the queries of one consumer, where its output passes through as floats
  int output_passes = 1;
  // Shared memory of a block, in bytes from its start: the queries of both consumers, the stages of K and of V,
  // barriers, the stages of scales of scores, ones in their place; then tables, and the producer's rings.
  int queries_at = 0, keys_at = 0, values_at = 0, ring_at = 0, barriers_at = 0, score_scales_at = 0, ones_at = 0,
      shared_bytes = 0;
  int cleared_at = 0;  // bits of tokens whose values were cleared, of each stage of V
  int posts_at = 0;    // work tiles that one warp posts (posted_work.cuh)
  int probabilities_at = 0,
      exchange_at = 0;  // of consumers that share rows (templates/kernels/prefill/prefill_wide.cuh)
  SidePlan k, v;
  FittingRange key_range, value_range;
  int exponents_at = 0;                         // of tokens, by side and place
  int query_factors_at = 0;                     // of the query rows of both consumers
  std::vector<int> key_columns, value_columns;  // where each dimension of a row stands in a row of an operand
  std::vector<Decision> decisions;
  int rows() const { return (shares_rows || alternates ? 1 : 2) * 64 * blocks; }  // of a work tile
  int threads() const { return 32 * producer_warps + 256; }                       // of a block: two warpgroups consume
  ProgramSource::PrefillSplits splits() const;
  bool posts_work() const { return !by_mma; }
  // Rows of f32 and bf16 may be beyond the range of fp16 (templates/kernels/prefill/query_factors.cuh).
  bool has_query_factors() const { return q_type != Element::f16; }
  bool has_powers() const { return key_range.is_wide || value_range.is_wide; }
  // Places for the exponents of a tile. Rows that are copied have two for each stage: those of a tile are read after
  // the stage of its halves was left.
  int exponent_places() const { return copies_rows ? 2 * stages : stages; }
  bool hides_tokens() const { return hides_first || hides_last || hides_by_score; }
  int stage_bytes() const { return k.stage_bytes + v.stage_bytes; }  // of one warp
};

// Dimensions of stored rows that are unpacked. Rows that are copied have any multiple of 16 from 64 to 256, or up to
// 576 of K beside up to 512 of V.
constexpr int kPrefillKeyDims[] = {64, 128, 192, 256}, kPrefillValueDims[] = {64, 128, 256};

// Whether prefill may serve as many query rows of a KV head: more than decode takes at once or, with wgmma, half of
// these.
bool has_prefill_rows(const Problem& problem);

// Whether rows of a side may hold numbers beyond fp16, and which scales they have if they do not.
FittingRange fitting_range(const SidePlan& side);

// The second pass of two: K and V are halves of a chunk of the context. If rows of the format may have powers of two,
// there is a kernel for chunks in which some have, and one for the others.
struct ChunkRows {
  bool k_powers = false, v_powers = false;  // rows that the kernel takes may have powers of two
  bool has_other = false;                   // it is one of two kernels
};

// Fails with unsupported; the error says what is missing. chunk: for the second pass of two.
Result<PrefillPlan> plan_prefill(const Problem& problem, std::optional<ChunkRows> chunk = {});

}  // namespace kvjit
