// emit_kernels: merge, rotate, reference, quantize, dequantize, probe.
// SPDX-License-Identifier: MIT
#include <algorithm>

#include "args/checks.cuh"
#include "args/features.cuh"
#include "generator/emit/writer.hpp"

namespace kvjit {
namespace {

using namespace emit;

constexpr int kWarpsOfRowKernels = 4;  // rotate, quantize, dequantize: one warp a row

std::string element_pair(const Problem& p) { return p.k.name + "-" + p.v.name; }

// Of the linear map between callers and inner rows, for a kernel's name. Formats that share it share their rotate
// kernels.
std::string domain_name(const Format& f, int head_dim) {
  std::string name = f.rotation.name + std::to_string(f.rotation.size);
  if (f.has_residual())
    name += fmt::format("-{}{}{}", f.residual.projection.name, f.residual.projection.size,
                        f.residual.is_original ? "-original" : "");
  if (f.stored_dim(head_dim) != head_dim) name += fmt::format(".of{}", f.stored_dim(head_dim));
  if (!f.channels.empty()) name += "." + f.name;
  return name;
}

}  // namespace

Source emit_merge(const DecodePlan& plan, const Registry& registry) {
  constexpr int kMostShares = 8,
                kMostWarps = 16;  // warps that share the parts of a slice of 128 sums; warps of a block
  const int dim = plan.v.inner_dim, row_slices = (dim + 127) / 128, slices = plan.rotates_output ? row_slices : 1;
  const int threads = slices * std::clamp(kMostWarps / slices, 1, kMostShares) * 32;
  const std::string name = "merge." + plan.name;
  Writer w = begin(registry, name, "parts of a decode call to rows of output");
  const bool is_featured = plan.features.any();
  w.fragment("kernels/decode/merge.cuh");
  if (is_featured) {
    feature_fragments(w, plan.features, plan.causal, plan.query_length);
    w.fragment("kernels/decode/features.cuh");
  }
  w.check_first(plan.checks);
  if (plan.rotates_output) domain_fragments(w, plan.v.format);
  w.line("// ======== the plan ========\nnamespace kv {{\n");
  if (plan.rotates_output) write_domain_struct(w, plan.v.format, plan.head_dim_v, true, "Value");
  w.line("KV_TABLE u16 kValueOrder[{}] = {{\n    {}}};\n", plan.value_order.size(),
         joined(plan.value_order, [](int v) { return std::to_string(v); }));
  write_features(w, plan.features);
  w.line("struct Plan {{");
  w.line("  static constexpr int kValueDim = {}, kGroup = {}, kRows = {}, kTile = {}, kThreads = {};", dim,
         plan.heads * plan.group, plan.heads * plan.rows, plan.tile, threads);
  w.line("  static constexpr int kTurns = {}, kAllRows = {};", plan.turns, plan.heads * plan.all_rows());
  write_output_dims(w, plan);
  w.line("  static constexpr int kSlices = {};  // of 128 sums of a row, a block", slices);
  w.line("  static constexpr bool kSkipsWhole = {}, kRotatesOutput = {};", flag(plan.finishes),
         flag(plan.rotates_output));
  if (plan.rotates_output) w.line("  using ValueDomain = kv::ValueDomain;");
  w.line("  KV_DEVICE static int value_order(int i) {{ return kValueOrder[i]; }}");
  if (is_featured) w.line("  using Feature = {};", feature_of(plan.features, plan.causal, plan.query_length));
  w.line("{}\n}};\n", store_of(plan.out_type));
  const int shared_bytes = threads * 16 + threads / 32 * 8 + (plan.rotates_output ? dim * 4 : 0);
  Source source = finish(w, name, plan.arch.name,
                         {"merge", "MergeArgs", threads, shared_bytes,
                          int(is_featured ? sizeof(kv::Featured<kv::MergeArgs>) : sizeof(kv::MergeArgs)), is_featured});
  source.row_threads = threads * row_slices / slices;
  return source;
}

Source emit_rotate(const Problem& p, bool is_inverse, const Registry& registry) {
  const Format& f = is_inverse ? p.v : p.k;
  const int head_dim = is_inverse ? p.v_dim() : p.head_dim;
  const Element from = is_inverse ? Element::f32 : p.q_type, to = is_inverse ? p.out_type : Element::f32;
  const std::string name =
      fmt::format("rotate.{}.{}.d{}.{}{}-{}.{}", is_inverse ? "inverse" : "forward", domain_name(f, head_dim), head_dim,
                  p.checks ? "checked." : "", to_string(from), to_string(to), p.arch.name);
  Writer w = begin(registry, name, is_inverse ? "outputs back from V's domain" : "queries into K's domain");
  w.fragment("kernels/auxiliary/rotate.cuh");
  w.check_first(p.checks);
  domain_fragments(w, f);
  w.line("// ======== the plan ========\nnamespace kv {{\n");
  write_domain(w, f, is_inverse);
  w.line("struct Plan {{\n{}", domain_members(f, head_dim));
  w.line("  static constexpr int kWarps = {};\n  static constexpr bool kIsInverse = {};", kWarpsOfRowKernels,
         flag(is_inverse));
  w.line("{}\n{}\n}};\n", load_of(from, "load"), store_of(to));
  return finish(w, name, p.arch.name, {"rotate", "RotateArgs", kWarpsOfRowKernels * 32, 0, sizeof(kv::RotateArgs)});
}

Source emit_reference(const Problem& p, const Registry& registry) {
  const bool is_planar = p.is_planar(), is_paged = p.page_tokens > 0, is_featured = p.features.any();
  const Paging k_paging = attention_paging(p.page_tokens, true, false),
               v_paging = attention_paging(p.page_tokens, false, false);
  const std::string name = fmt::format("reference.{}.d{}.g{}.q{}.{}.{}{}{}-{}.{}", element_pair(p), p.dims(),
                                       p.q_heads_per_kv, p.query_length, layout_name(is_planar, p.page_tokens),
                                       std::string(p.causal ? "causal." : "") + (p.checks ? "checked." : ""),
                                       p.features.id(), to_string(p.q_type), to_string(p.out_type), p.arch.name);
  Writer w = begin(registry, name, "attention as the formula says it");
  w.fragment("kernels/reference/reference.cuh");
  if (is_paged) w.fragment("formats/stored_pages.cuh");
  w.check_first(p.checks);
  feature_fragments(w, p.features, p.causal, p.query_length);
  if (is_featured) w.fragment("kernels/reference/features.cuh");
  w.line("// ======== the plan ========\nnamespace kv {{\n");
  write_format(w, p.k, p.head_dim, "KeyFormat", is_planar, k_paging);
  write_format(w, p.v, p.v_dim(), "ValueFormat", is_planar, v_paging);
  write_features(w, p.features);
  w.line("struct Plan {{\n  static constexpr int kGroup = {};", p.q_heads_per_kv);
  w.line("  using K = KeyFormat;\n  using V = ValueFormat;\n  using Feature = {};",
         feature_of(p.features, p.causal, p.query_length));
  w.line("{}\n{}\n}};\n", load_of(p.k.is_transformed() ? Element::f32 : p.q_type, "load_query"),
         store_of(p.v.is_transformed() ? Element::f32 : p.out_type));
  return finish(w, name, p.arch.name,
                {"reference", is_paged ? "PagedAttentionArgs" : "AttentionArgs", 32, 0,
                 int((is_paged ? sizeof(kv::PagedAttentionArgs) : sizeof(kv::AttentionArgs)) +
                     (is_featured ? sizeof(kv::FeatureArgs) : 0)),
                 is_featured});
}

Source emit_merge_contexts(const Problem& p, const Registry& registry) {
  const std::string name =
      fmt::format("merge_contexts.d{}.q{}.{}.{}", p.v_dim(), p.query_length, to_string(p.out_type), p.arch.name);
  Writer w = begin(registry, name, "outputs over parts of a context to one");
  w.fragment("kernels/auxiliary/merge_contexts.cuh");
  w.line("// ======== the plan ========\nnamespace kv {{\n");
  w.line("struct Plan {{\n  static constexpr int kWarps = {}, kDim = {}, kPerLane = {};", kWarpsOfRowKernels, p.v_dim(),
         (p.v_dim() + 31) / 32);
  w.line("{}\n{}\n}};\n", load_of(p.out_type, "load"), store_of(p.out_type));
  return finish(w, name, p.arch.name,
                {"merge_contexts", "MergePartsArgs", kWarpsOfRowKernels * 32, 0, sizeof(kv::MergePartsArgs)});
}

Source emit_codec(const CodecPlan& plan, const Registry& registry) {
  const Format& f = plan.format;
  const char* family = plan.is_quantize ? "quantize" : "dequantize";
  const std::string name = fmt::format("{}.{}.d{}.{}.{}", family, f.name, plan.head_dim, plan.layout(), plan.arch);
  Writer w = begin(registry, name, plan.is_quantize ? "rows into the cache" : "cache rows back to numbers");
  w.fragment(fmt::format("kernels/codec/{}.cuh", family));
  codec_fragments(w, plan);
  w.check_first(plan.checks);
  domain_fragments(w, f);
  w.line("// ======== the plan ========\nnamespace kv {{\n");
  const std::string rows = rows_name(plan, "StoredFormat");
  write_format(w, f, plan.head_dim, rows, plan.is_planar, codec_paging(plan.page_tokens));
  write_slots(w, plan, "StoredFormat", rows);
  write_domain(w, f, !plan.is_quantize);
  const int warp_bytes = plan.is_quantize ? writer_bytes(f, plan.head_dim) : 0;
  if (plan.is_quantize) write_encoder(w, f, "StoredFormat", "RowEncoder", plan.is_planar);
  w.line("struct Plan {{\n{}", domain_members(f, plan.head_dim));
  w.line("  static constexpr int kWarps = {}, kWarpBytes = {};\n  using F = StoredFormat;", kWarpsOfRowKernels,
         warp_bytes);
  if (plan.is_quantize) write_writer_members(w, f, "StoredFormat", "RowEncoder", plan.is_planar);
  w.line("}};\n");
  return finish(
      w, name, plan.arch,
      {family, codec_args(plan), kWarpsOfRowKernels * 32, kWarpsOfRowKernels * warp_bytes, codec_args_bytes(plan)});
}

Source emit_check(const std::string& arch, const Registry& registry) {
  constexpr int kThreads = 256;
  const std::string name = "check." + arch;
  Writer w = begin(registry, name, "lengths, page tables and slots of a call");
  w.fragment("kernels/auxiliary/check.cuh");
  w.line("// ======== the plan ========\nnamespace kv {{\n\nstruct Plan {{");
  w.line("  static constexpr int kThreads = {};\n}};\n", kThreads);
  return finish(w, name, arch, {"check", "CheckArgs", kThreads, 0, sizeof(kv::CheckArgs)});
}

Source emit_probe(int unroll, const std::string& arch, const Registry& registry) {
  constexpr int kThreads = 512;  // four such blocks fill a multiprocessor
  const std::string name = fmt::format("probe.u{}.{}", unroll, arch);
  Writer w = begin(registry, name, "bytes read and not used");
  w.fragment("kernels/auxiliary/probe.cuh");
  w.line("// ======== the plan ========\nnamespace kv {{\n\nstruct Plan {{");
  w.line("  static constexpr int kThreads = {}, kUnroll = {};\n}};\n", kThreads, unroll);
  return finish(w, name, arch, {"probe", "ProbeArgs", kThreads, 0, sizeof(kv::ProbeArgs)});
}

}  // namespace kvjit
