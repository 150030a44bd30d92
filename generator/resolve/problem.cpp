// resolve: names become formats, a hook and an arch. A combination that does not work is an error with its place in the
// spec.
// SPDX-License-Identifier: MIT
#include "generator/resolve/problem.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "generator/catalogue/side_format.hpp"

namespace kvjit {

std::string layout_name(bool is_planar, int page_tokens) {
  if (page_tokens == 0) return is_planar ? "planar" : "rows";
  return fmt::format("paged{}{}", page_tokens, is_planar ? "" : ".rows");
}

std::string problem_id(const Problem& p) {
  const std::string heads = p.token_heads > 0 ? fmt::format("heads{}.", p.token_heads) : "";
  const std::string more = heads + p.features.id() + (p.checks ? "checked." : "") + (p.append ? "append." : "") +
                           (p.values_in_keys ? "in_keys." : "") +
                           (p.sparse_v > 0 ? fmt::format("sparse{}.", p.sparse_v) : "");
  return fmt::format("{}-{}.d{}.g{}.q{}{}.{}.{}{}{}{}-{}", p.k.name, p.v.name, p.dims(), p.q_heads_per_kv,
                     p.varlen ? "1-" : "", p.query_length, layout_name(p.is_planar(), p.page_tokens),
                     p.causal ? "causal." : "", p.fuse ? "" : "apart.", more, to_string(p.q_type),
                     to_string(p.out_type));
}

namespace {

// Run-time query lengths.
Result<void> check_varlen(const Problem& problem, const Spec& spec) {
  if (!problem.varlen) return {};
  const auto refuse = [&](const char* what, const char* key) -> Result<void> {
    return fail(Code::unsupported, fmt::format("{} with query_length = \"any\"", what), spec.where(key),
                {"a number as query_length serves it"});
  };
  if (problem.append) return refuse("append", "attention.append");
  if (problem.token_heads > 0) return refuse("token_heads", "cache.token_heads");
  if (problem.features.has_hook() && problem.features.hook.reads("query"))
    return refuse("a hook that reads `query`, which is no position,", "attention.hook");
  return {};
}

// Rows of V that are the first channels of K's rows.
Result<void> check_in_keys(const Problem& problem, const Spec& spec) {
  if (spec.k.in_keys)
    return fail(Code::bad_input, "'in_keys' of K", spec.where("k.in_keys"), {"v.in_keys says that V is in K's rows"});
  if (!problem.values_in_keys) return {};
  const auto refuse = [&](std::string what, std::string possible) -> Result<void> {
    return fail(Code::unsupported, "v.in_keys " + std::move(what), spec.where("v.in_keys"), {std::move(possible)});
  };
  const Format &k = problem.k, &v = problem.v;
  if (k.name != v.name || (!k.has_segments() && k.block != v.block) || problem.v_dim() > problem.head_dim)
    return refuse(
        fmt::format("with K of {} channels in '{}' and V of {} in '{}', whose rows begin otherwise", problem.head_dim,
                    k.name, problem.v_dim(), v.name),
        "one format for both, and head_dim_v up to head_dim; a format with one block a head needs equal heads");
  const auto planes = [](const Format& f, int dim) {
    return std::pair(f.stored_dim(dim) / f.block * f.code_bytes, f.stored_dim(dim) / f.block * f.scale_bytes);
  };
  if (problem.is_planar() && planes(k, problem.head_dim) != planes(v, problem.v_dim()))
    return refuse(fmt::format("in layout planar, where rows of {} channels are shorter than K's of {}", problem.v_dim(),
                              problem.head_dim),
                  "equal heads and records of segments work, and layout = \"rows\"");
  if (k.is_transformed()) return refuse("with rotated or scaled channels", "formats without a rotation work");
  if (k.is_ragged(problem.head_dim)) return refuse("with padded heads", "multiples of 32 channels work");
  if (problem.append) return refuse("with append", "quantize stores the rows of K");
  if (problem.token_heads > 0) return refuse("with token_heads", "without cache.token_heads it works");
  return {};
}

// Checks formats with a scale for each head. Layout planar has one plane of scales, so it cannot have those of heads
// beside stored ones.
Result<void> check_head_scales(const Problem& problem, const Spec& spec) {
  for (const auto& [format, key] : {std::pair{&problem.k, "k"}, std::pair{&problem.v, "v"}}) {
    if (!format->has_head_scales()) continue;
    if (format->has_scale() && problem.is_planar())
      return fail(Code::unsupported,
                  fmt::format("'{}' ('{}') in layout planar: its scales and those of heads would be one plane",
                              format->name, key),
                  spec.where("cache.layout"), {"layout = \"rows\" works, and pages with page_layout = \"rows\""});
    if (format->rounds_to_bf16)
      return fail(
          Code::unsupported,
          fmt::format("'{}' ('{}') has a scale for each head of values that are rounded to bf16", format->name, key),
          spec.where(std::string(key) + ".format"), {"values that are not rounded work"});
  }
  return {};
}

// Returns whether a head is one block with nothing but codes and a multiple of four scales of one byte.
bool has_scales_to_swizzle(const Format& f, int head_dim) {
  if (!f.has_scale() || f.has_segments() || f.has_residual() || f.has_minimum() || f.stored_mask > 0) return false;
  const int scales = f.block / f.scale.group;
  return bytes_of(f.scale.type) == 1 && f.scale_bytes == scales && scales % 4 == 0 && !f.scale.renormalise &&
         f.stored_dim(head_dim) == f.block && f.field(FieldKind::scale)->rows == 1;
}

// Checks that scales which shall be swizzled 4 x 4 can be.
Result<void> check_swizzle(const Problem& problem, const Spec& spec, int side) {
  const SideSpec& wanted = side == 0 ? spec.k : spec.v;
  if (!wanted.swizzles_scales) return {};
  const std::string key = side == 0 ? "k.swizzle" : "v.swizzle";
  const auto refuse = [&](const std::string& what, std::string possible) -> Result<void> {
    return fail(Code::unsupported, key + " " + what, spec.where(key), {std::move(possible)});
  };
  if (problem.page_tokens < 16 || !problem.is_planar())
    return refuse("without pages of planes of at least 16 tokens",
                  "layout = \"paged\", page_tokens = 16 and page_layout = \"planar\" work");
  if (!has_scales_to_swizzle(side == 0 ? problem.k : problem.v, problem.dim(side)))
    return refuse(fmt::format("of '{}', whose head is not one block with a multiple of four scales of one byte",
                              wanted.format.empty() ? "inline numbers" : wanted.format),
                  "vllm_nvfp4 works");
  return {};
}

// Lanes of a warp take 32 values of a row at a time, so heads are multiples of 32. Formats without blocks (f16, bf16,
// f32) may have other heads, if a row is a multiple of the 16 bytes of a copy of decode.
Result<void> check_lanes(const Format& format, const Spec& spec, const char* key) {
  const int dim = spec.dim_of(key), stored = format.stored_dim(dim);
  if (stored % 32 == 0 || (format.is_ragged(dim) && format.row_bytes(stored) % 16 == 0)) return {};
  if (format.is_ragged(dim))
    return fail(
        Code::unsupported,
        fmt::format("a head of {} values of '{}' ('{}') is {} bytes; heads that are no multiple of 32 values must "
                    "be one of 16 bytes",
                    dim, format.name, key, format.row_bytes(stored)),
        spec.where_of_dim(key), {fmt::format("multiples of {} work", 16 / format.block_bytes)});
  return fail(
      Code::unsupported,
      fmt::format("head_dim {} is not a multiple of 32, the lanes of a warp, and '{}' ('{}') does not pad heads", dim,
                  format.name, key),
      spec.where_of_dim(key),
      {"multiples of 32 work: 64, 96, 128, ...",
       "formats that pad heads take any: those with padding = \"zero\", turbo3_0 for one; f16, bf16 and f32 take "
       "multiples "
       "of 8"});
}

// The features, with the hook looked up. Fails if features contradict each other or the rest of the spec.
Result<FeatureSet> resolve_features(const Spec& spec, const Registry& registry) {
  FeatureSet set = spec.features;
  if (!spec.hook.empty()) {
    KV_TRY(hook, registry.hook(spec.hook, spec.where("attention.hook")));
    set.hook = *hook;
  }
  const Where where = spec.where("attention.features");
  if (set.mask_slopes && !set.mask)
    return fail(Code::bad_input, "mask_slopes multiplies a mask that is not there", where,
                {"add \"mask\"", "slopes without a mask are \"alibi\""});
  if (set.mask_slopes && set.alibi)
    return fail(Code::bad_input, "alibi and mask_slopes both take the slopes", where,
                {"one of them: \"alibi\" adds slope * (token - position), \"mask_slopes\" multiplies the mask"});
  if (set.position_offset && spec.append)
    return fail(Code::unsupported, "append stores the new tokens, and position_offset says that the queries are others",
                where, {"leave out one of the two"});
  if (set.token_ranges && spec.append)
    return fail(Code::unsupported,
                "append stores new tokens as their tiles are read, and token_ranges leaves tiles out", where,
                {"leave out one of the two"});
  return set;
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
  static_cast<AttentionShape&>(problem) = spec;
  problem.head_dim_v = spec.v_dim();
  problem.fuse = spec.fuse;
  KV_TRY(features, resolve_features(spec, registry));
  problem.features = features;
  KV_CHECK(check_varlen(problem, spec));
  problem.values_in_keys = spec.v.in_keys;
  KV_CHECK(check_in_keys(problem, spec));
  KV_CHECK(check_head_scales(problem, spec));
  for (const int side : {0, 1}) KV_CHECK(check_swizzle(problem, spec, side));
  problem.id = problem_id(problem);
  return problem;
}

}  // namespace kvjit
