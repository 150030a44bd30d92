// emit_merge: writes the kernel that merges the KV splits of a decode call, for calls in which decode does not.
// SPDX-License-Identifier: MIT
#include <algorithm>

#include "args/features.cuh"
#include "args/varlen.cuh"
#include "generator/kernels/decode/emit.hpp"

namespace kvjit {

using namespace emit;

Source emit_merge(const DecodePlan& plan, const Registry& registry) {
  constexpr int kMostSliceWarps = 8,  // warps that divide the KV splits of a slice, which is 128 sums of a row
      kMostWarps = 16;                // warps of a block
  const int dim = plan.v.rotated_dim, row_slices = (dim + 127) / 128, slices = plan.rotates_output ? row_slices : 1;
  const int threads = slices * std::clamp(kMostWarps / slices, 1, kMostSliceWarps) * 32;
  const int merge_bytes = threads * 16 + threads / 32 * 8 + (plan.rotates_output ? dim * 4 : 0),
            shared_bytes = merge_bytes + (plan.varlen ? 16 : 0);
  const std::string name = "merge." + plan.name;
  Writer w = begin(registry, name, "splits of a decode call to rows of output");
  const bool is_featured = plan.features.any();
  w.fragment("kernels/decode/merge.cuh");
  if (is_featured) {
    feature_fragments(w, plan.features, plan.causal, plan.query_length);
    w.fragment("kernels/decode/features.cuh");
  }
  if (plan.varlen) w.fragment("kernels/decode/varlen.cuh");
  w.check_first(plan.checks);
  if (plan.rotates_output) domain_fragments(w, plan.v.format);
  w.line("// ======== the plan ========\nnamespace kv {{\n");
  if (plan.rotates_output) write_domain_struct(w, plan.v.format, plan.head_dim_v, true, "Value");
  w.line("KV_TABLE u16 kValueOrder[{}] = {{\n    {}}};\n", plan.value_order.size(),
         joined(plan.value_order, [](int v) { return std::to_string(v); }));
  write_features(w, plan.features);
  w.line("struct Plan {{");
  w.line("  static constexpr int kValueDim = {}, kGroup = {}, kRows = {}, kTile = {}, kThreads = {};", dim,
         plan.heads * plan.q_heads_per_kv, plan.heads * plan.rows, plan.tile, threads);
  w.line("  static constexpr int kQueryChunks = {}, kAllRows = {};", plan.query_chunks, plan.heads * plan.query_rows());
  if (plan.varlen) {
    write_varlen(w, plan.query_length, plan.q_type, plan.out_type);
    w.line("  static constexpr int kRowCountAt = {};", merge_bytes);
  }
  write_output_dims(w, plan);
  w.line("  static constexpr int kSlices = {};  // of 128 sums of a row, a block", slices);
  w.line("  static constexpr bool kSkipsUnsplit = {}, kRotatesOutput = {};", flag(plan.fuses_merge),
         flag(plan.rotates_output));
  if (plan.rotates_output) w.line("  using ValueDomain = kv::ValueDomain;");
  w.line("  KV_DEVICE static int value_order(int i) {{ return kValueOrder[i]; }}");
  if (is_featured) w.line("  using Feature = {};", feature_of(plan.features, plan.causal, plan.query_length));
  w.line("{}\n}};\n", store_of(plan.out_type));
  Source source = finish(w, name, plan.arch.name,
                         {"merge", "MergeArgs", threads, shared_bytes,
                          int((is_featured ? sizeof(kv::Featured<kv::MergeArgs>) : sizeof(kv::MergeArgs)) +
                              (plan.varlen ? sizeof(kv::VarlenArgs) : 0)),
                          is_featured, plan.varlen});
  source.row_threads = threads * row_slices / slices;
  return source;
}

}  // namespace kvjit
