// emit_reference: writes the readable kernel that other kernels are compared with. It takes the arguments of decode.
// SPDX-License-Identifier: MIT
#include "generator/kernels/reference/emit.hpp"

#include "args/features.cuh"
#include "args/page_table.cuh"
#include "args/varlen.cuh"
#include "generator/emit/writer.hpp"

namespace kvjit {

using namespace emit;

Source emit_reference(const Problem& p, const Registry& registry) {
  const bool is_planar = p.is_planar(), is_paged = p.page_tokens > 0, is_featured = p.features.any();
  const Element q_type = p.k.is_transformed() ? Element::f32 : p.q_type,
                out_type = p.v.is_transformed() ? Element::f32 : p.out_type;
  const Paging k_paging = attention_paging(p.page_tokens, true, false),
               v_paging = attention_paging(p.page_tokens, false, false);
  const std::string name =
      fmt::format("reference.{}.d{}.g{}.q{}{}.{}.{}{}{}-{}.{}", p.k.name + "-" + p.v.name, p.dims(), p.q_heads_per_kv,
                  p.varlen ? "1-" : "", p.query_length, layout_name(is_planar, p.page_tokens),
                  std::string(p.causal ? "causal." : "") + (p.checks ? "checked." : ""), p.features.id(),
                  to_string(p.q_type), to_string(p.out_type), p.arch.name);
  Writer w = begin(registry, name, "attention as the formula says it");
  w.fragment("kernels/reference/reference.cuh");
  if (is_paged) w.fragment("formats/stored_pages.cuh");
  if (p.varlen) w.fragment("kernels/reference/varlen.cuh");
  w.check_first(p.checks);
  feature_fragments(w, p.features, p.causal, p.query_length);
  if (is_featured) w.fragment("kernels/reference/features.cuh");
  const std::string plan_type = attention_plan(w, p.k, p.v, "kernels/reference/head_scales.cuh");
  format_fragments(w, p.k, false), format_fragments(w, p.v, false);
  w.line("// ======== the plan ========\nnamespace kv {{\n");
  write_format(w, p.k, p.head_dim, "KeyFormat", is_planar, k_paging);
  write_format(w, p.v, p.v_dim(), "ValueFormat", is_planar, v_paging);
  write_features(w, p.features);
  w.line("struct Plan {{\n  static constexpr int kGroup = {};", p.q_heads_per_kv);
  if (p.varlen) {
    w.line("  static constexpr int kQueryChunks = 1;");
    write_varlen(w, p.query_length, q_type, out_type);
  }
  w.line("  using K = KeyFormat;\n  using V = ValueFormat;\n  using Feature = {};",
         feature_of(p.features, p.causal, p.query_length));
  w.line("{}\n{}\n}};\n", load_of(q_type, "load_query"), store_of(out_type));
  return finish(w, name, p.arch.name,
                {"reference", is_paged ? "PagedAttentionArgs" : "AttentionArgs", 32, 0,
                 int((is_paged ? sizeof(kv::PagedAttentionArgs) : sizeof(kv::AttentionArgs)) +
                     (is_featured ? sizeof(kv::FeatureArgs) : 0) + (p.varlen ? sizeof(kv::VarlenArgs) : 0)),
                 is_featured, p.varlen, plan_type});
}

}  // namespace kvjit
