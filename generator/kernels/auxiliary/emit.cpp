// emit_rotate, emit_merge_contexts, emit_mask_ranges, emit_check, emit_probe, emit_clock: each writes a banner, a few
// constants and one entry.
// SPDX-License-Identifier: MIT
#include "generator/kernels/auxiliary/emit.hpp"

#include "args/checks.cuh"
#include "args/clock.cuh"
#include "args/features.cuh"
#include "generator/emit/writer.hpp"

namespace kvjit {
namespace {

using namespace emit;

constexpr int kWarpsOfRowKernels = 4;  // a block; one warp takes a row

// A name for the linear map between the caller's domain and the rotated domain. Formats with the same map have the same
// rotate kernels.
std::string domain_name(const Format& f, int head_dim) {
  std::string name = f.rotation.name + std::to_string(f.rotation.size);
  if (f.has_residual())
    name += fmt::format("-{}{}{}", f.residual.projection.name, f.residual.projection.size,
                        f.residual.is_original ? "-original" : "");
  if (f.stored_dim(head_dim) != head_dim) name += fmt::format(".of{}", f.stored_dim(head_dim));
  if (!f.channels.empty()) name += "." + f.name;
  return name;
}

// A kernel that nothing but the threads of its block and its arch decides. Kernel, fragment and entry have one name.
Source emit_of_threads(const Registry& registry, const std::string& arch, const char* does, const Entry& entry) {
  const std::string name = entry.family + "." + arch;
  Writer w = begin(registry, name, does);
  w.fragment("kernels/auxiliary/" + entry.family + ".cuh");
  w.line("// ======== the plan ========\nnamespace kv {{\n\nstruct Plan {{");
  w.line("  static constexpr int kThreads = {};\n}};\n", entry.threads);
  return finish(w, name, arch, entry);
}

}  // namespace

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

Source emit_merge_contexts(const Problem& p, const Registry& registry) {
  const std::string name =
      fmt::format("merge_contexts.d{}.q{}.{}.{}", p.v_dim(), p.query_length, to_string(p.out_type), p.arch.name);
  Writer w = begin(registry, name, "outputs over several contexts to one");
  w.fragment("kernels/auxiliary/merge_contexts.cuh");
  w.line("// ======== the plan ========\nnamespace kv {{\n");
  w.line("struct Plan {{\n  static constexpr int kWarps = {}, kDim = {}, kPerLane = {};", kWarpsOfRowKernels, p.v_dim(),
         (p.v_dim() + 31) / 32);
  w.line("{}\n{}\n}};\n", load_of(p.out_type, "load"), store_of(p.out_type));
  return finish(w, name, p.arch.name,
                {"merge_contexts", "MergeContextsArgs", kWarpsOfRowKernels * 32, 0, sizeof(kv::MergeContextsArgs)});
}

Source emit_mask_ranges(const std::string& arch, const Registry& registry) {
  constexpr int kThreads = 1024;
  return emit_of_threads(registry, arch, "which tokens a mask shows",
                         {"mask_ranges", "MaskRangesArgs", kThreads, kThreads / 8, sizeof(kv::MaskRangesArgs)});
}

Source emit_check(const std::string& arch, const Registry& registry) {
  return emit_of_threads(registry, arch, "lengths, page tables and slots of a call",
                         {"check", "CheckArgs", 256, 0, sizeof(kv::CheckArgs)});
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

Source emit_clock(const std::string& arch, const Registry& registry) {
  constexpr int kThreads = 32;
  const std::string name = "clock." + arch;
  Writer w = begin(registry, name, "cycles over a time");
  w.fragment("kernels/auxiliary/clock.cuh");
  w.line("// ======== the plan ========\nnamespace kv {{\n\nstruct Plan {{}};\n");
  return finish(w, name, arch, {"clock", "ClockArgs", kThreads, 0, sizeof(kv::ClockArgs)});
}

}  // namespace kvjit
