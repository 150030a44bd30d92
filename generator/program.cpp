// make_program: the kernels of one attention call and its cache, planned and emitted; and explain, which
// prints the reasons.
// SPDX-License-Identifier: MIT
#include "generator/program.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "generator/kernels/decode/plan.hpp"
#include "generator/kernels/emit.hpp"

namespace kvjit {
namespace {

SideFacts side_facts(const Format& f, int head_dim) {
  SideFacts facts;
  const long long blocks = f.stored_dim(head_dim) / f.block;
  facts.format = f.name;
  facts.is_transformed = f.is_transformed();
  facts.has_tensor_scale = f.scale.rule == ScaleRule::tensor;
  facts.inner_dim = f.inner_dim(head_dim);
  facts.row_bytes = blocks * f.block_bytes;
  facts.code_row_bytes = blocks * f.code_bytes;
  facts.scale_row_bytes = blocks * f.scale_bytes;
  facts.bits_per_value = f.bits_per_value();
  return facts;
}

// What the kernels that encode, decode and transform rows can serve: one warp holds a row, value i in lane i % 32, and
// reduces over groups that are whole registers or equal parts of one.
Result<void> check_codec(const Format& f, int head_dim) {
  const int stored = f.stored_dim(head_dim);
  const auto refuse = [&](const std::string& what, std::vector<std::string> notes = {}) -> Result<void> {
    return fail(Code::unsupported, fmt::format("the codec kernels need {}", what), {}, std::move(notes));
  };
  KV_CHECK(check_head_dim(f, head_dim, {}));
  if (stored % 32 != 0 && !f.is_ragged(head_dim))
    return refuse(fmt::format("a head_dim that is a multiple of 32, not {}", stored),
                  {"a format with padding = \"zero\" may serve it"});
  const auto fits = [](int size) { return size % 32 == 0 || 32 % size == 0; };
  const std::pair<const char*, int> groups[] = {
      {"blocks", f.block}, {"scale groups", f.scale.group}, {"scale spans", f.scale.span}};
  for (const auto& [what, size] : groups)
    if (!fits(size))
      return refuse(fmt::format("{} that divide 32 or are multiples of it, not {} as {} has", what, size, f.name));
  if (!f.rotation.is_orthogonal)
    return fail(
        Code::unsupported,
        fmt::format("{}: rotation '{}' is not orthogonal, so its transpose does not undo it", f.name, f.rotation.name),
        {},
        {"it projects the residual of QJL; an orthogonal matrix is kind = \"dense\" with generator = \"householder\""});
  const bool has_outliers = f.sections.size() > 1 + std::size_t(f.has_residual());
  if (has_outliers && f.block % 32 != 0)
    return refuse(fmt::format("masks of whole words: a block of 32 values or a multiple; {} has {}", f.name, f.block));
  if (f.zero_bytes && (f.scale.span < f.block || f.stored_mask > 0 || f.scale.rule != ScaleRule::norm))
    return refuse(
        fmt::format("a norm for the whole block, and no stored mask, where tiny blocks are zero bytes ({})", f.name));
  if (f.scale.division == Division::ratio && f.scale.rule != ScaleRule::amax)
    return refuse(fmt::format("rule = \"amax\" for division = \"ratio\" ({})", f.name));
  return {};
}

}  // namespace

const char* to_string(Role role) {
  constexpr const char* kNames[] = {"rotate_q",
                                    "decode",
                                    "merge",
                                    "rotate_out",
                                    "reference",
                                    "quantize_k",
                                    "quantize_v",
                                    "dequantize_k",
                                    "dequantize_v",
                                    "quantize_bulk_k_f16",
                                    "quantize_bulk_k_bf16",
                                    "quantize_bulk_k_f32",
                                    "quantize_bulk_v_f16",
                                    "quantize_bulk_v_bf16",
                                    "quantize_bulk_v_f32",
                                    "dequantize_bulk_k_f16",
                                    "dequantize_bulk_k_bf16",
                                    "dequantize_bulk_k_f32",
                                    "dequantize_bulk_v_f16",
                                    "dequantize_bulk_v_bf16",
                                    "dequantize_bulk_v_f32",
                                    "merge_contexts",
                                    "check"};
  return kNames[int(role)];
}

namespace {

CodecPlan codec_of(const Problem& problem, bool is_key, bool is_quantize) {
  return {is_key ? problem.k : problem.v,
          problem.dim(is_key ? 0 : 1),
          problem.is_planar(),
          is_quantize,
          problem.page_tokens,
          problem.checks,
          problem.arch.name};
}

// The kernels for many rows at once, of both sides.
void add_tiles(const Problem& problem, const Registry& registry, ProgramSource& program) {
  constexpr std::pair<Element, kv::RowType> kTypes[] = {
      {Element::f16, kv::RowType::f16}, {Element::bf16, kv::RowType::bf16}, {Element::f32, kv::RowType::f32}};
  for (const bool is_key : {true, false}) {
    const Format& f = is_key ? problem.k : problem.v;
    Decision decision;
    const int head_dim = is_key ? problem.head_dim : problem.v_dim();
    const auto plan = plan_tiles(f, head_dim, program.is_planar, problem.arch, decision);
    decision.what = is_key ? "write k" : "write v";
    program.decisions.push_back(decision);
    for (const bool is_quantize : {true, false})
      for (const auto& [element, type] : kTypes)
        if (const TileCall call{is_quantize, element}; plan)
          if (const auto kernel = plan_tile_kernel(*plan, f, call, problem.arch))
            program.kernels[tile_role(is_quantize, is_key, type)] =
                emit_tiles(codec_of(problem, is_key, is_quantize), *plan, *kernel, call, registry);
  }
}

}  // namespace

Result<ProgramSource> make_reference_program(const Problem& problem, const Registry& registry) {
  ProgramSource program;
  program.id = problem.id;
  program.title = problem.title;
  program.arch = problem.arch.name;
  program.is_planar = problem.is_planar();
  program.page_tokens = problem.page_tokens;
  program.token_heads = problem.token_heads;
  program.checks = problem.checks;
  program.head_dim = problem.head_dim;
  program.head_dim_v = problem.v_dim();
  program.q_heads_per_kv = problem.q_heads_per_kv;
  program.query_length = problem.query_length;
  program.causal = problem.causal;
  program.features = problem.features;
  program.q_type = problem.q_type;
  program.out_type = problem.out_type;
  program.rows = problem.q_heads_per_kv * problem.query_length;
  program.k = side_facts(problem.k, problem.head_dim);
  program.v = side_facts(problem.v, problem.v_dim());
  KV_CHECK(check_codec(problem.k, problem.head_dim));
  KV_CHECK(check_codec(problem.v, problem.v_dim()));

  program.kernels[Role::reference] = emit_reference(problem, registry);
  if (program.k.is_transformed) program.kernels[Role::rotate_q] = emit_rotate(problem, false, registry);
  if (program.v.is_transformed) program.kernels[Role::rotate_out] = emit_rotate(problem, true, registry);
  for (const bool is_quantize : {true, false}) {
    program.kernels[is_quantize ? Role::quantize_k : Role::dequantize_k] =
        emit_codec(codec_of(problem, true, is_quantize), registry);
    program.kernels[is_quantize ? Role::quantize_v : Role::dequantize_v] =
        emit_codec(codec_of(problem, false, is_quantize), registry);
  }
  if (problem.checks) {
    program.kernels[Role::check] = emit_check(program.arch, registry);
    program.decisions.push_back({"checks",
                                 "lengths, page tables, slots",
                                 "a launch ahead of each call looks at them, and the call does nothing if one is wrong",
                                 {}});
  }
  add_tiles(problem, registry, program);
  if (problem.features.lse) program.kernels[Role::merge_contexts] = emit_merge_contexts(problem, registry);
  return program;
}

namespace {

// One for each feature, with what it costs.
void add_features(const Problem& problem, const Registry& registry, ProgramSource& program) {
  const FeatureSet& set = problem.features;
  if (!set.any()) return;
  const std::string range = feature_cost("features/token_range.cuh", registry);
  if (set.has_window())
    program.decisions.push_back(
        {"feature", fmt::format("window [{}, {}]", set.window_left, set.window_right), range, {}});
  if (problem.causal) program.decisions.push_back({"feature", "causal", range, {}});
  if (set.position_offset) program.decisions.push_back({"feature", "position_offset", "costs nothing a score", {}});
  for (const FeatureUse& use : feature_uses(set, problem.query_length))
    program.decisions.push_back({"feature", use.name, feature_cost(use.fragment, registry), {}});
}

Result<ProgramSource> make_tuned(const Problem& problem, const Registry& registry, const Tuning& tuning) {
  KV_TRY(program, make_reference_program(problem, registry));
  KV_TRY(decode, plan_decode(problem, tuning));
  decode.name = problem.id + "." + problem.arch.name;
  program.tile_tokens = decode.tile;
  program.rows = decode.rows * decode.heads;
  program.turns = decode.turns;
  program.decisions.insert(program.decisions.begin(), decode.decisions.begin(), decode.decisions.end());
  add_features(problem, registry, program);
  program.rotates_queries = decode.rotates_queries;
  program.finishes = decode.finishes;
  program.merge_steps = decode.merge_steps();
  program.appends = decode.appends;
  program.rotates_output = decode.rotates_output;
  program.kernels[Role::decode] = emit_decode(decode, registry);
  program.kernels[Role::decode].may_overlap = !problem.checks && problem.arch.has("programmatic_launch");
  if (decode.leaves_parts()) {
    program.kernels[Role::merge] = emit_merge(decode, registry);
    program.kernels[Role::merge].may_overlap = program.kernels[Role::decode].may_overlap;
  }
  program.decisions.push_back(
      {"rotation",
       fmt::format("{} before, {} after", program.k.is_transformed ? problem.k.rotation.name : "none",
                   program.v.is_transformed ? problem.v.rotation.name : "none"),
       "once per query and output row; keys and values stay rotated",
       {}});
  return std::move(program);
}

}  // namespace

Result<ProgramSource> make_program(const Problem& problem, const Registry& registry) {
  return make_tuned(problem, registry, find_tuning(registry.tuning(problem.arch.name), problem));
}

Result<ProgramSource> make_program(const Problem& problem, const Registry& registry, const BlockShape& shape) {
  Tuning asked;
  asked.match = Tuning::Match::asked;
  asked.shape = shape;
  asked.why = to_string(shape);
  return make_tuned(problem, registry, asked);
}

Result<ProgramSource> make_codec_program(const Format& format, int head_dim, const Arch& arch,
                                         const Registry& registry) {
  KV_CHECK(check_codec(format, head_dim));
  ProgramSource program;
  program.id = fmt::format("{}.d{}.rows", format.name, head_dim);
  program.arch = arch.name;
  program.is_planar = false;
  program.head_dim = program.head_dim_v = head_dim;
  program.k = program.v = side_facts(format, head_dim);
  program.kernels[Role::quantize_k] = emit_codec({format, head_dim, false, true, 0, false, arch.name}, registry);
  program.kernels[Role::dequantize_k] = emit_codec({format, head_dim, false, false, 0, false, arch.name}, registry);
  return program;
}

std::string explain(const ProgramSource& program) {
  std::string text = fmt::format("{} on {}: {} kernels\n", program.id, program.arch, program.kernels.size());
  for (const Decision& decision : program.decisions) {
    text += fmt::format("  {:<10} {:<34} {}\n", decision.what, decision.choice, decision.why);
    for (const std::string& rejected : decision.rejected) text += fmt::format("    rejected {}\n", rejected);
  }
  for (const auto& [role, source] : program.kernels)
    text += fmt::format("  {:<23} {:>4} threads {:>7} bytes shared  {}\n", to_string(role), source.threads,
                        source.shared_bytes, source.name);
  return text;
}

}  // namespace kvjit
