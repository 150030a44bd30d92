// resolve: names become formats, rotations and an arch; what cannot go together is an error with its place.
// SPDX-License-Identifier: MIT
#include "generator/problem.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace kvjit {

Result<Format> resolve_side(const SideSpec& side, const Spec& spec, const std::string& key, const Registry& registry) {
  const auto uncalibrated = [&]() -> Result<Format> {
    if (side.format.empty()) {
      KV_TRY(made, inline_format(side, registry));
      KV_CHECK(check_head_dim(made, spec.head_dim, spec.where("attention.head_dim")));
      return made;
    }
    KV_CHECK(registry.format(side.format, spec.where(key + ".format")));
    return registry.format_for(side.format, spec.head_dim, spec.where("attention.head_dim"));
  };
  if (!side.calibration) return uncalibrated();
  KV_TRY(format, uncalibrated());
  const Where where = spec.where(key + ".calibration");
  KV_TRY(calibration, registry.calibration(*side.calibration, where));
  KV_CHECK(check_calibration(*calibration, spec.head_dim, where));
  return calibrated(std::move(format), *calibration, where);
}

namespace {

// Rows that are not padded are dealt to the lanes of a warp as they are.
Result<void> check_lanes(const Format& format, const Spec& spec, const char* key) {
  if (format.stored_dim(spec.head_dim) % 32 == 0) return {};
  return fail(
      Code::unsupported,
      fmt::format("head_dim {} is not a multiple of 32, the lanes of a warp, and '{}' ('{}') does not pad heads",
                  spec.head_dim, format.name, key),
      spec.where("attention.head_dim"),
      {"multiples of 32 work: 64, 96, 128, ...",
       "formats that pad heads take any: those with padding = \"zero\", turbo3_0 for one"});
}

}  // namespace

Result<Problem> resolve(const Spec& spec, const Registry& registry, const std::string& arch_name) {
  if (spec.layers)
    return fail(Code::unsupported, "a spec with [layers] stands for one spec a layer, not for one program",
                spec.where("layers"), {"expand_layers gives them"});
  Problem problem;
  KV_TRY(k, resolve_side(spec.k, spec, "k", registry));
  KV_TRY(v, resolve_side(spec.v, spec, "v", registry));
  KV_CHECK(check_lanes(k, spec, "k"));
  KV_CHECK(check_lanes(v, spec, "v"));
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
  problem.fuse = spec.fuse;
  problem.sparse_v = spec.sparse_v;
  problem.append = spec.append;
  problem.causal = std::count(spec.features.begin(), spec.features.end(), "causal") != 0;
  const std::string more =
      (spec.append ? std::string("append.") : "") + (spec.sparse_v > 0 ? fmt::format("sparse{}.", spec.sparse_v) : "");
  problem.id = fmt::format("{}-{}.d{}.g{}.q{}.{}.{}{}{}{}-{}", k.name, v.name, problem.head_dim, problem.q_heads_per_kv,
                           problem.query_length, to_string(problem.layout), problem.causal ? "causal." : "",
                           problem.fuse ? "" : "apart.", more, to_string(problem.q_type), to_string(problem.out_type));
  return problem;
}

}  // namespace kvjit
