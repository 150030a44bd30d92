// emit_prefill: writes the plan of prefill as text: both sides, the orders of Q and O, and struct Plan with what else
// the fragments of templates/kernels/prefill ask for.
// SPDX-License-Identifier: MIT
#include "generator/kernels/prefill/emit.hpp"

#include <algorithm>

#include "args/context_chunks.cuh"
#include "args/features.cuh"
#include "args/varlen.cuh"
#include "generator/kernels/decode/emit.hpp"

namespace kvjit {

using namespace emit;

namespace {

// Whether queries of 16 bits an element are not what the operand holds already.
bool changes_queries(const PrefillPlan& plan) {
  return plan.rotates_queries || plan.q_type != Element::f16 ||
         !std::is_sorted(plan.key_columns.begin(), plan.key_columns.end());
}

// Writes which rows of each side are unpacked as they are.
void write_ranges(Writer& w, const PrefillPlan& plan) {
  w.line("// Rows whose largest scale, or number, has bits from kLeast to kMost are halves as they are.");
  w.line("template <bool kIsV>\nstruct Range {{");
  const auto both = [&](const char* type, const char* name, auto of) {
    w.line("  static constexpr {} {} = kIsV ? {} : {};", type, name, of(plan.value_range), of(plan.key_range));
  };
  both("float", "kLargestCode", [](const FittingRange& range) { return real(range.largest_code); });
  both("bool", "kRoundsScales", [](const FittingRange& range) { return flag(range.rounds_scales); });
  both("u32", "kLeast", [](const FittingRange& range) { return fmt::format("{:#x}", range.least); });
  both("u32", "kMost", [](const FittingRange& range) { return fmt::format("{:#x}", range.most); });
  both("u32", "kMostMinimum", [](const FittingRange& range) { return fmt::format("{:#x}", range.most_minimum); });
  w.line("}};\n");
}

}  // namespace

Source emit_prefill(const PrefillPlan& plan, const Registry& registry) {
  const std::string name = fmt::format("prefill.{}", plan.name);
  Writer w = begin(registry, name, "attention of many query rows over a packed KV cache");
  overload_fragments(w, plan.k, plan.v);
  w.fragment(plan.by_mma        ? "kernels/prefill/prefill_mma.cuh"
             : plan.shares_rows ? "kernels/prefill/prefill_wide.cuh"
                                : "kernels/prefill/prefill.cuh");
  if (plan.features.any()) {
    feature_fragments(w, plan.features, plan.causal, plan.query_length);
    w.fragment("kernels/prefill/features.cuh");
  }
  if (plan.hides_tokens()) w.fragment("kernels/prefill/hidden_values.cuh");
  if (plan.has_powers()) {
    w.fragment("kernels/prefill/exponents.cuh");
    w.fragment(plan.copies_rows ? "kernels/prefill/stored_exponents.cuh" : "kernels/prefill/fit_rows.cuh");
  }
  if (plan.has_query_factors()) w.fragment("kernels/prefill/query_factors.cuh");
  if (plan.varlen) w.fragment("kernels/prefill/varlen.cuh");
  if (plan.over_context_chunks) w.fragment("kernels/prefill/context_chunks.cuh");
  const bool is_paged = plan.page_tokens > 0;
  if (is_paged) w.fragment("kernels/decode/paged.cuh");
  const std::string plan_type = attention_plan(w, plan.k.format, plan.v.format, "kernels/prefill/head_scales.cuh");
  w.check_first(plan.checks);
  w.overlap = Overlap::at_start;
  side_fragments(w, plan.k), side_fragments(w, plan.v);
  if (plan.rotates_queries) domain_fragments(w, plan.k.format);
  if (plan.rotates_output) domain_fragments(w, plan.v.format);
  w.line("// ======== the plan ========\nnamespace kv {{\n");
  write_side(w, plan.k, "KeySide", plan.threads(), attention_paging(plan.page_tokens, true, false));
  write_side(w, plan.v, "ValueSide", plan.threads(), attention_paging(plan.page_tokens, false, false));
  const auto number = [](int v) { return std::to_string(v); };
  w.line("// Where each dimension of Q, and of the output, stands in a row of an operand.");
  w.line("KV_TABLE u16 kKeyColumn[{}] = {{\n    {}}};", plan.key_columns.size(), joined(plan.key_columns, number));
  w.line("KV_TABLE u16 kValueColumn[{}] = {{\n    {}}};\n", plan.value_columns.size(),
         joined(plan.value_columns, number));
  if (plan.rotates_queries) write_domain_struct(w, plan.k.format, plan.head_dim, false, "Key");
  if (plan.rotates_output) write_domain_struct(w, plan.v.format, plan.head_dim_v, true, "Value");
  if (plan.has_powers() && !plan.copies_rows) write_ranges(w, plan);
  write_features(w, plan.features);
  w.line("struct Plan {{");
  w.line("  static constexpr int kGroup = {}, kQueries = {}, kAllRows = {}, kQueryChunks = 1;", plan.q_heads_per_kv,
         plan.query_length, plan.query_rows());
  w.line("  static constexpr bool kIsCausal = {};", flag(plan.causal));
  w.line("  static constexpr int kRows = {}, kBlocks = {};  // query rows of a work tile; blocks of 64 of a consumer",
         plan.rows(), plan.blocks);
  w.line("  static constexpr int kStages = {};             // of K, and of V, as halves", plan.stages);
  w.line("  static constexpr int kTokens = {};             // of a tile", plan.tokens);
  w.line(
      "  static constexpr int kWarps = {}, kTile = {};    // of the producer; tokens that one of them brings at once",
      plan.producer_warps, plan.stage_tokens);
  w.line("  static constexpr int kConsumerWarps = 8;");
  w.line("  static constexpr int kProducerRegisters = {}, kConsumerRegisters = {};", plan.producer_registers,
         plan.consumer_registers);
  w.line("  static constexpr bool kCopiesRows = {}, kRotatesQueries = {}, kRotatesOutput = {};", flag(plan.copies_rows),
         flag(plan.rotates_queries), flag(plan.rotates_output));
  w.line("  static constexpr bool kCopiesQueries = {}, kChangesQueries = {};  // to the operand, and then in place",
         flag(plan.q_type != Element::f32), flag(changes_queries(plan)));
  w.line("  static constexpr int kQueryDim = {}, kQueryStored = {};  // of a row of Q: of the call, and rotated",
         plan.rotates_queries ? plan.head_dim : plan.k.rotated_dim, plan.k.rotated_dim);
  w.line("  static constexpr int kOutputDim = {};  // of a row of the output",
         plan.rotates_output ? plan.head_dim_v : plan.v.rotated_dim);
  w.line("  static constexpr int kKeyDim = {}, kValueDim = {};  // of operands", plan.k.rotated_dim, plan.value_dim);
  w.line("  static constexpr int kQueryBytes = {}, kOutputPasses = {};  // of a consumer; of a block of its output",
         plan.query_bytes, plan.output_passes);
  w.line("  static constexpr int kQueriesAt = {}, kKeysAt = {}, kValuesAt = {}, kBarriersAt = {};", plan.queries_at,
         plan.keys_at, plan.values_at, plan.barriers_at);
  w.line("  static constexpr bool kSharesRows = {}, kAlternates = {};  // both consumers have the same query rows",
         flag(plan.shares_rows), flag(plan.alternates));
  w.line("  static constexpr int kPostsAt = {};", plan.posts_at);
  if (plan.hides_tokens())
    w.line("  static constexpr int kClearedAt = {};\n  static constexpr bool kHidesFirst = {}, kHidesByScore = {};",
           plan.cleared_at, flag(plan.hides_first), flag(plan.hides_by_score));
  if (plan.shares_rows)
    w.line("  static constexpr int kProbabilitiesAt = {}, kExchangeAt = {};", plan.probabilities_at, plan.exchange_at);
  w.line("  static constexpr bool kScalesScores = {}, kTracksMaximum = {};", flag(plan.scales_scores),
         flag(plan.tracks_maximum));
  w.line("  static constexpr int kScoreScalesAt = {}, kOnesAt = {};", plan.score_scales_at, plan.ones_at);
  w.line("  static constexpr int kRingAt = {}, kRing = {}, kStageBytes = {};", plan.ring_at, plan.ring,
         plan.stage_bytes());
  if (plan.has_powers()) {
    w.line("  static constexpr bool kHasKeyExponents = {}, kHasValueExponents = {};", flag(plan.key_range.is_wide),
           flag(plan.value_range.is_wide));
    w.line("  static constexpr int kExponentsAt = {}, kExponentPlaces = {};", plan.exponents_at,
           plan.exponent_places());
    if (!plan.copies_rows) w.line("  template <bool kIsV>\n  using Range = kv::Range<kIsV>;");
  }
  if (plan.is_one_of_two) w.line("  static constexpr bool kTakesPowers = {};", flag(plan.has_powers()));
  if (plan.has_query_factors()) w.line("  static constexpr int kQueryFactorsAt = {};", plan.query_factors_at);
  w.line("  using K = KeySide;\n  using V = ValueSide;");
  if (plan.features.any()) w.line("  using Feature = {};", feature_of(plan.features, plan.causal, plan.query_length));
  if (plan.rotates_queries) w.line("  using KeyDomain = kv::KeyDomain;");
  if (plan.rotates_output) w.line("  using ValueDomain = kv::ValueDomain;");
  w.line("{}\n{}", load_bits_of(plan.q_type), store_of(plan.out_type));
  w.line("  KV_DEVICE static u32 key_column(int i) {{ return kKeyColumn[i]; }}");
  w.line("  KV_DEVICE static u32 value_column(int i) {{ return kValueColumn[i]; }}\n}};\n");
  const auto bytes_of = [&]<class Args>(const Args&) {
    return int((plan.features.any() ? sizeof(kv::Featured<Args>) : sizeof(Args)) +
               (plan.varlen ? sizeof(kv::VarlenArgs) : 0));
  };
  const char* const args = plan.over_context_chunks ? "ContextChunkAttentionArgs"
                           : is_paged               ? "PagedAttentionArgs"
                                                    : "AttentionArgs";
  const int args_bytes = plan.over_context_chunks ? bytes_of(kv::ContextChunkAttentionArgs{})
                         : is_paged               ? bytes_of(kv::PagedAttentionArgs{})
                                                  : bytes_of(kv::AttentionArgs{});
  return finish(
      w, name, plan.arch.name,
      {"prefill", args, plan.threads(), plan.shared_bytes, args_bytes, plan.features.any(), plan.varlen, plan_type});
}

}  // namespace kvjit
