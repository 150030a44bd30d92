// emit_kernels: merge, rotate, reference, quantise, dequantise.
// SPDX-License-Identifier: MIT
#include "core/args.cuh"
#include "generator/emit_text.hpp"

namespace kvjit {
namespace {

using namespace emit;

constexpr int kWarpsOfRowKernels = 4;  // rotate, quantise, dequantise: one warp a row

std::string element_pair(const Problem& p) { return p.k.name + "-" + p.v.name; }

}  // namespace

Source emit_merge(const Problem& p, const Registry& registry) {
  const Element type = p.v.rotation.is_identity() ? p.out_type : Element::f32;
  const int rows = p.q_heads_per_kv * p.query_length, threads = p.head_dim <= 64 ? 64 : 128;
  const std::string name = fmt::format("merge.d{}.g{}.q{}.{}.{}", p.head_dim, p.q_heads_per_kv, p.query_length,
                                       to_string(type), p.arch.name);
  Writer w = begin(registry, name, "splits of a decode call to one softmax");
  w.fragment("kernels/merge.cuh");
  w.line("// ======== the plan ========\nnamespace kv {{\n\nstruct Plan {{");
  w.line("  static constexpr int kHeadDim = {}, kGroup = {}, kRows = {}, kThreads = {};", p.head_dim, p.q_heads_per_kv,
         rows, threads);
  w.line("{}\n}};\n", store_of(type));
  return finish(w, name, p.arch.name, {"merge", "MergeArgs", threads, 0, sizeof(kv::MergeArgs)});
}

Source emit_rotate(const Problem& p, bool is_inverse, const Registry& registry) {
  const Rotation& rotation = is_inverse ? p.v.rotation : p.k.rotation;
  const Element from = is_inverse ? Element::f32 : p.q_type, to = is_inverse ? p.out_type : Element::f32;
  const std::string name = fmt::format("rotate.{}.{}{}.d{}.{}-{}.{}", is_inverse ? "inverse" : "forward", rotation.name,
                                       rotation.size, p.head_dim, to_string(from), to_string(to), p.arch.name);
  Writer w = begin(registry, name, is_inverse ? "outputs back from V's rotation" : "queries into K's rotation");
  w.fragment("kernels/rotate.cuh");
  w.fragment(rotation_fragment(rotation));
  w.line("// ======== the plan ========\nnamespace kv {{\n");
  write_rotation(w, rotation);
  w.line(
      "struct Plan {{\n  static constexpr int kHeadDim = {}, kWarps = {};\n  static constexpr bool "
      "kIsInverse = {};",
      p.head_dim, kWarpsOfRowKernels, flag(is_inverse));
  w.line("  using Rotation = PlanRotation;\n{}\n{}\n}};\n", load_of(from, "load"), store_of(to));
  return finish(w, name, p.arch.name, {"rotate", "RotateArgs", kWarpsOfRowKernels * 32, 0, sizeof(kv::RotateArgs)});
}

Source emit_reference(const Problem& p, const Registry& registry) {
  const bool is_planar = p.layout == Layout::planar;
  const std::string name = fmt::format("reference.{}.d{}.g{}.q{}.{}.{}{}-{}.{}", element_pair(p), p.head_dim,
                                       p.q_heads_per_kv, p.query_length, to_string(p.layout), p.causal ? "causal." : "",
                                       to_string(p.q_type), to_string(p.out_type), p.arch.name);
  Writer w = begin(registry, name, "attention as the formula says it");
  w.fragment("kernels/reference.cuh");
  w.fragment("formats/encode.cuh");
  w.fragment(feature_fragment(p.causal));
  w.line("// ======== the plan ========\nnamespace kv {{\n");
  write_format(w, p.k, "KeyFormat", is_planar);
  write_format(w, p.v, "ValueFormat", is_planar);
  w.line("struct Plan {{\n  static constexpr int kHeadDim = {}, kGroup = {};", p.head_dim, p.q_heads_per_kv);
  w.line("  using K = KeyFormat;\n  using V = ValueFormat;\n  using Feature = {};",
         feature_of(p.causal, p.query_length));
  w.line("{}\n{}\n}};\n", load_of(p.k.rotation.is_identity() ? p.q_type : Element::f32, "load_query"),
         store_of(p.v.rotation.is_identity() ? p.out_type : Element::f32));
  return finish(w, name, p.arch.name, {"reference", "AttentionArgs", 32, 0, sizeof(kv::AttentionArgs)});
}

Source emit_codec(const CodecPlan& plan, const Registry& registry) {
  const Format& f = plan.format;
  const char* family = plan.is_quantise ? "quantise" : "dequantise";
  const std::string name =
      fmt::format("{}.{}.d{}.{}.{}", family, f.name, plan.head_dim, plan.is_planar ? "planar" : "rows", plan.arch);
  Writer w = begin(registry, name, plan.is_quantise ? "rows into the cache" : "cache rows back to f32");
  w.fragment(fmt::format("kernels/{}.cuh", family));
  w.fragment("formats/encode.cuh");
  w.fragment(rotation_fragment(f.rotation));
  w.line("// ======== the plan ========\nnamespace kv {{\n");
  write_format(w, f, "StoredFormat", plan.is_planar);
  write_rotation(w, f.rotation);
  const int warp_bytes = (plan.head_dim + plan.head_dim / f.block * 2 + 15) / 16 * 16;  // a byte a code, two a scale
  w.line("struct Plan {{\n  static constexpr int kHeadDim = {}, kWarps = {}, kWarpBytes = {};", plan.head_dim,
         kWarpsOfRowKernels, warp_bytes);
  w.line("  using F = StoredFormat;\n  using Rotation = PlanRotation;\n}};\n");
  return finish(w, name, plan.arch,
                {family, "CodecArgs", kWarpsOfRowKernels * 32, plan.is_quantise ? kWarpsOfRowKernels * warp_bytes : 0,
                 sizeof(kv::CodecArgs)});
}

}  // namespace kvjit
