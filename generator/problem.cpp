// resolve: names become formats, rotations and an arch; what cannot go together is an error with its place.
// SPDX-License-Identifier: MIT
#include "generator/problem.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace kvjit {
namespace {

Result<Format> resolve_side(const SideSpec& side, const Spec& spec, const char* key, const Registry& registry) {
  if (side.calibration) {
    const Where where = spec.where(std::string(key) + ".calibration");
    KV_TRY(calibration, registry.calibration(*side.calibration, where));
    KV_CHECK(check_calibration(*calibration, spec.head_dim, where));
    return fail(Code::unsupported,
                fmt::format("no kernel applies the channel scales of calibration '{}'", *side.calibration), where,
                {"`kvjit quality` measures what they are worth"});
  }
  if (side.format.empty()) return inline_format(side, registry);
  KV_TRY(format, registry.format(side.format, spec.where(std::string(key) + ".format")));
  return *format;
}

Result<void> check_head_dim(const Format& format, const Spec& spec, const char* key) {
  const auto refuse = [&](const char* what, int size) -> Result<void> {
    return fail(Code::bad_input,
                fmt::format("head_dim {} is not a multiple of {}, the {} of {} ('{}')", spec.head_dim, size, what,
                            format.name, key),
                spec.where("attention.head_dim"),
                {fmt::format("multiples of {} work: {}, {}, ...", size, size, 2 * size)});
  };
  if (!format.rotation.is_identity() && spec.head_dim % format.rotation.size != 0)
    return refuse("rotation size", format.rotation.size);
  if (spec.head_dim % format.block != 0) return refuse("block", format.block);
  return {};
}

}  // namespace

Result<Problem> resolve(const Spec& spec, const Registry& registry, const std::string& arch_name) {
  if (spec.layers)
    return fail(Code::unsupported, "a spec with [layers] stands for one spec a layer, not for one program",
                spec.where("layers"), {"expand_layers gives them"});
  Problem problem;
  KV_TRY(k, resolve_side(spec.k, spec, "k", registry));
  KV_TRY(v, resolve_side(spec.v, spec, "v", registry));
  KV_CHECK(check_head_dim(k, spec, "k"));
  KV_CHECK(check_head_dim(v, spec, "v"));
  if (spec.head_dim % 32 != 0)
    return fail(Code::unsupported,
                fmt::format("head_dim {} is not a multiple of 32, the lanes of a warp", spec.head_dim),
                spec.where("attention.head_dim"), {"multiples of 32 work: 64, 96, 128, ..."});
  KV_TRY(arch, registry.require_arch(arch_name, spec.where("target.arch")));
  problem.k = k;
  problem.v = v;
  problem.arch = *arch;
  problem.title = spec.title;
  problem.head_dim = spec.head_dim;
  problem.q_heads_per_kv = spec.q_heads_per_kv;
  problem.query_length = spec.query_length;
  problem.q_type = spec.q_type;
  problem.out_type = spec.out_type;
  problem.layout = spec.layout;
  problem.causal = std::count(spec.features.begin(), spec.features.end(), "causal") != 0;
  problem.id = fmt::format("{}-{}.d{}.g{}.q{}.{}.{}{}-{}", k.name, v.name, problem.head_dim, problem.q_heads_per_kv,
                           problem.query_length, to_string(problem.layout), problem.causal ? "causal." : "",
                           to_string(problem.q_type), to_string(problem.out_type));
  return problem;
}

}  // namespace kvjit
